"""The interfaces as they were before the rooms were rearranged; `test_interfaces` compares them with today's."""
