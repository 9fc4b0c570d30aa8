"""Scale-up and scale-down: two durable workflows, what comes next in each, and the steps that carry it out."""
