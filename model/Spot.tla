-------------------------------- MODULE Spot --------------------------------
(* What spot takes, and what replaces it: one notice for each machine, with the replacement beside it.

   Closing and draining wait for no lease: anybody does them, guarded by the notice's own item and the node's version.
   The replacement is planned under the lease, by one write that also proves the fence; from there on it is carried by
   writes that name its stage and attempt. Hints (rebalance recommendations) are replaced first and drained after.
   The same adversary as in ScaleUp. A replacement is named by its token: the machine it stands for, and the attempt. *)
EXTENDS Naturals, FiniteSets, TLC

CONSTANTS
    Procs, Machines,
    Others,       \* workers that nobody takes, at first
    MaxWorkers, MaxAttempt, MaxFence,
    HINTS,        \* whether hints come, too
    \* Each of these is TRUE in the protocol; a mutant makes one FALSE.
    CORDONFIRST,  \* a node is closed before its pods are asked to leave
    HINTWAITS,    \* a hinted machine goes only when its replacement is accepted
    PLANFENCED,   \* the plan is one write with the proof of the fence, where there is none yet
    STAGECAS,     \* later writes want the stage and the attempt that were read
    NODEFENCE,    \* changes to a node test and write its fence
    GIVEUPFIRST,  \* giving a replacement up is stored before its machine is terminated
    CLOSELAST,    \* a notice is closed only when its replacement is settled
    LOOKHELD      \* what is decided on was seen after the lease was taken

VARIABLES
    fence, others,                        \* the cluster's item: of the lease; workers that nobody takes
    kind, phase,                          \* the notice: "none", "hint" or "interruption"; how far it has come
    stage, attempt,                       \* the replacement: open, planned, launched, giving, accepted, given
    alive, closed, pods,                  \* the machine, its node
    machine, node, nodeFence, net,        \* replacements: EC2, Kubernetes, requests under way
    unsafe, hasty,                        \* history: what must not have happened
    pc, mine, ctx

Notices == <<kind, phase, stage, attempt>>
World   == <<alive, closed, pods>>
New     == <<machine, node, nodeFence, net>>
Past    == <<unsafe, hasty>>
vars    == <<fence, others, Notices, World, New, Past, pc, mine, ctx>>

Tokens == [m : Machines, k : 0..MaxAttempt]
Blank == [m |-> "none", k |-> 0, fence |-> 0, workers |-> 0, nodes |-> {}]
Sym == Permutations(Procs) \cup Permutations(Machines)

Init ==
    /\ fence = 0 /\ others = Others
    /\ kind = [m \in Machines |-> "none"] /\ phase = [m \in Machines |-> "none"]
    /\ stage = [m \in Machines |-> "open"] /\ attempt = [m \in Machines |-> 0]
    /\ alive = [m \in Machines |-> TRUE] /\ closed = [m \in Machines |-> FALSE] /\ pods = [m \in Machines |-> TRUE]
    /\ machine = [t \in Tokens |-> "none"] /\ node = [t \in Tokens |-> "absent"] /\ nodeFence = [t \in Tokens |-> 0] /\ net = {}
    /\ unsafe = FALSE /\ hasty = FALSE
    /\ pc = [p \in Procs |-> "idle"] /\ mine = [p \in Procs |-> 0] /\ ctx = [p \in Procs |-> Blank]

Holds(p)   == mine[p] = fence
Goes(p, x) == pc' = [pc EXCEPT ![p] = x]
Keeps(p)   == ctx' = [ctx EXCEPT ![p].m = "none", ![p].k = 0, ![p].fence = 0]
Stops(p)   == Goes(p, "idle") /\ mine' = [mine EXCEPT ![p] = 0] /\ ctx' = [ctx EXCEPT ![p] = Blank]
Token(p)   == [m |-> ctx[p].m, k |-> ctx[p].k]
Settled(m) == stage[m] \in {"accepted", "given"}
IsLeaving(m) == kind[m] = "interruption" \/ phase[m] \notin {"none", "NOTICED"}
Expected   == others + Cardinality({m \in Machines : alive[m] /\ ~IsLeaving(m)})
                     + Cardinality({m \in Machines : stage[m] \in {"planned", "launched", "giving", "accepted"}})

\* ---- what needs no lease
Tell(m, k) == /\ kind[m] \in (IF k = "hint" THEN {"none"} ELSE {"none", "hint"}) /\ phase[m] \in {"none", "NOTICED"} /\ alive[m]
              /\ (k = "hint" => HINTS)
              /\ kind' = [kind EXCEPT ![m] = k] /\ phase' = [phase EXCEPT ![m] = "NOTICED"]
              /\ UNCHANGED <<fence, others, stage, attempt, World, New, Past, pc, mine, ctx>>

MayDrain(m) == kind[m] = "interruption" \/ (HINTWAITS => stage[m] = "accepted")

\* The node's version ties the cordon to what was read; the phase is written after it.
Cordon(m) == /\ phase[m] = "NOTICED" /\ MayDrain(m) /\ alive[m] /\ ~closed[m] /\ closed' = [closed EXCEPT ![m] = TRUE]
             /\ hasty' = (hasty \/ (kind[m] = "hint" /\ stage[m] # "accepted"))
             /\ UNCHANGED <<fence, others, Notices, alive, pods, New, unsafe, pc, mine, ctx>>

Cordoned(m) == /\ phase[m] = "NOTICED" /\ MayDrain(m) /\ (closed[m] \/ ~alive[m] \/ ~CORDONFIRST) /\ phase' = [phase EXCEPT ![m] = "CORDONED"]
               /\ UNCHANGED <<fence, others, kind, stage, attempt, World, New, Past, pc, mine, ctx>>

Evict(m) == /\ phase[m] = "CORDONED" /\ pods[m] /\ pods' = [pods EXCEPT ![m] = FALSE]
            /\ UNCHANGED <<fence, others, Notices, alive, closed, New, Past, pc, mine, ctx>>

Drained(m) == /\ phase[m] = "CORDONED" /\ alive[m] /\ ~pods[m] /\ phase' = [phase EXCEPT ![m] = "DRAINED"]
              /\ UNCHANGED <<fence, others, kind, stage, attempt, World, New, Past, pc, mine, ctx>>

Expire(m) == /\ phase[m] = "CORDONED" /\ (~alive[m] \/ kind[m] = "interruption") /\ phase' = [phase EXCEPT ![m] = "EXPIRED"]
             /\ UNCHANGED <<fence, others, kind, stage, attempt, World, New, Past, pc, mine, ctx>>

Terminate(m) == /\ phase[m] = "DRAINED" /\ alive[m] /\ alive' = [alive EXCEPT ![m] = FALSE]
                /\ unsafe' = (unsafe \/ pods[m] \/ ~closed[m])
                /\ hasty' = (hasty \/ (kind[m] = "hint" /\ stage[m] # "accepted"))
                /\ UNCHANGED <<fence, others, Notices, closed, pods, New, pc, mine, ctx>>

CloseNotice(m) == /\ \/ phase[m] \in {"DRAINED", "EXPIRED"} /\ ~alive[m] /\ (CLOSELAST => Settled(m))
                     \/ phase[m] = "NOTICED" /\ kind[m] = "hint" /\ ((~alive[m] /\ stage[m] = "open") \/ stage[m] = "given")
                  /\ phase' = [phase EXCEPT ![m] = "CLOSED"]
                  /\ UNCHANGED <<fence, others, kind, stage, attempt, World, New, Past, pc, mine, ctx>>

\* ---- the world
Schedule(m) == alive[m] /\ ~closed[m] /\ ~pods[m] /\ pods' = [pods EXCEPT ![m] = TRUE] /\ UNCHANGED <<fence, others, Notices, alive, closed, New, Past, pc, mine, ctx>>
Reclaim(m) == kind[m] = "interruption" /\ alive[m] /\ alive' = [alive EXCEPT ![m] = FALSE] /\ UNCHANGED <<fence, others, Notices, closed, pods, New, Past, pc, mine, ctx>>
Launch(t) == t \in net /\ net' = net \ {t} /\ machine' = [machine EXCEPT ![t] = IF @ = "none" THEN "runs" ELSE @]
             /\ UNCHANGED <<fence, others, Notices, World, node, nodeFence, Past, pc, mine, ctx>>
Join(t) == machine[t] = "runs" /\ node[t] = "absent" /\ node' = [node EXCEPT ![t] = "tainted"]
           /\ UNCHANGED <<fence, others, Notices, World, machine, nodeFence, net, Past, pc, mine, ctx>>

\* ---- the lease, and a look at the world
View(p) == [ctx[p] EXCEPT !.workers = Expected, !.nodes = {t \in Tokens : node[t] # "absent"}]
Look(p) == /\ pc[p] = (IF LOOKHELD THEN "held" ELSE "idle") /\ ctx' = [ctx EXCEPT ![p] = View(p)]
           /\ Goes(p, IF LOOKHELD THEN "acts" ELSE "looked") /\ UNCHANGED <<fence, others, Notices, World, New, Past, mine>>
Acquire(p) == /\ pc[p] = (IF LOOKHELD THEN "idle" ELSE "looked") /\ fence < MaxFence /\ fence' = fence + 1
              /\ mine' = [mine EXCEPT ![p] = fence + 1] /\ Goes(p, IF LOOKHELD THEN "held" ELSE "acts")
              /\ UNCHANGED <<others, Notices, World, New, Past, ctx>>
Release(p) == pc[p] = "acts" /\ fence < MaxFence /\ Stops(p) /\ UNCHANGED <<fence, others, Notices, World, New, Past>>
Die(p) == pc[p] \notin {"idle", "acts"} /\ fence < MaxFence /\ Stops(p) /\ UNCHANGED <<fence, others, Notices, World, New, Past>>

\* ---- the replacement
Wanted(m) == phase[m] \in {"NOTICED", "CORDONED", "DRAINED", "EXPIRED"}

PickPlan(p) == /\ pc[p] = "acts" /\ Holds(p)
               /\ \E m \in Machines : /\ Wanted(m) /\ stage[m] = "open" /\ ctx' = [ctx EXCEPT ![p].m = m]
                                      /\ Goes(p, IF ctx[p].workers < MaxWorkers THEN "plan" ELSE "refuse")
               /\ UNCHANGED <<fence, others, Notices, World, New, Past, mine>>

Plan(p) == /\ pc[p] = "plan"
           /\ IF (PLANFENCED => Holds(p)) /\ stage[ctx[p].m] = "open"
              THEN /\ stage' = [stage EXCEPT ![ctx[p].m] = "planned"]
                   /\ ctx' = [ctx EXCEPT ![p].m = "none", ![p].workers = @ + 1] /\ Goes(p, "acts") /\ mine' = mine
              ELSE stage' = stage /\ Stops(p)
           /\ UNCHANGED <<fence, others, kind, phase, attempt, World, New, Past>>

\* A scale-up, which counts what is promised here as well.
PickGrow(p) == /\ pc[p] = "acts" /\ Holds(p) /\ ctx[p].workers < MaxWorkers /\ Goes(p, "grow")
               /\ UNCHANGED <<fence, others, Notices, World, New, Past, mine, ctx>>

Grow(p) == /\ pc[p] = "grow"
           /\ IF Holds(p) THEN others' = others + 1 /\ ctx' = [ctx EXCEPT ![p].workers = @ + 1] /\ Goes(p, "acts") /\ mine' = mine
                          ELSE others' = others /\ Stops(p)
           /\ UNCHANGED <<fence, Notices, World, New, Past>>

Fits(p, x) == STAGECAS => stage[ctx[p].m] = x /\ attempt[ctx[p].m] = ctx[p].k

\* A later stage, if it is still where it was read.
Advance(p, from, to) ==
    /\ IF Fits(p, from) THEN stage' = [stage EXCEPT ![ctx[p].m] = to] /\ attempt' = [attempt EXCEPT ![ctx[p].m] = IF STAGECAS THEN @ ELSE ctx[p].k]
                             /\ Goes(p, "acts") /\ Keeps(p) /\ mine' = mine
                        ELSE UNCHANGED <<stage, attempt>> /\ Stops(p)
    /\ UNCHANGED <<fence, others, kind, phase, World, New, Past>>

Refuse(p) == pc[p] = "refuse" /\ Advance(p, "open", "given")

PickLaunch(p) == /\ pc[p] = "acts" /\ Holds(p)
                 /\ \E m \in Machines : Wanted(m) /\ stage[m] = "planned" /\ ctx' = [ctx EXCEPT ![p].m = m, ![p].k = attempt[m]]
                 /\ Goes(p, "call") /\ UNCHANGED <<fence, others, Notices, World, New, Past, mine>>

Call(p) == /\ pc[p] = "call" /\ net' = net \cup {Token(p)} /\ Goes(p, "answer")
           /\ UNCHANGED <<fence, others, Notices, World, machine, node, nodeFence, Past, mine, ctx>>

\* EC2 shows a machine for the token: running, or launched and gone.
Launched(p) == pc[p] = "answer" /\ machine[Token(p)] = "runs" /\ Goes(p, "launched") /\ UNCHANGED <<fence, others, Notices, World, New, Past, mine, ctx>>
Record(p) == pc[p] = "launched" /\ Advance(p, "planned", "launched")
NoAnswer(p) == pc[p] = "answer" /\ Goes(p, "acts") /\ Keeps(p) /\ UNCHANGED <<fence, others, Notices, World, New, Past, mine>>

Refused(p) == /\ pc[p] = "answer" /\ machine[Token(p)] # "runs" /\ net' = net \ {Token(p)} /\ Goes(p, "bump")
              /\ UNCHANGED <<fence, others, Notices, World, machine, node, nodeFence, Past, mine, ctx>>

Bump(p) == /\ pc[p] = "bump"
           /\ IF Fits(p, "planned")
              THEN /\ IF ctx[p].k < MaxAttempt THEN attempt' = [attempt EXCEPT ![ctx[p].m] = ctx[p].k + 1] /\ stage' = [stage EXCEPT ![ctx[p].m] = "planned"]
                                               ELSE stage' = [stage EXCEPT ![ctx[p].m] = "given"] /\ attempt' = attempt
                   /\ Goes(p, "acts") /\ Keeps(p) /\ mine' = mine
              ELSE UNCHANGED <<stage, attempt>> /\ Stops(p)
           /\ UNCHANGED <<fence, others, kind, phase, World, New, Past>>

PickAccept(p) == /\ pc[p] = "acts" /\ Holds(p)
                 /\ \E m \in Machines : LET t == [m |-> m, k |-> attempt[m]] IN
                    /\ Wanted(m) /\ stage[m] = "launched" /\ t \in ctx[p].nodes
                    /\ ctx' = [ctx EXCEPT ![p].m = m, ![p].k = attempt[m], ![p].fence = nodeFence[t]]
                 /\ Goes(p, "accept") /\ UNCHANGED <<fence, others, Notices, World, New, Past, mine>>

Accept(p) == /\ pc[p] = "accept"
             /\ LET t == Token(p) IN
                IF node[t] = "accepted" THEN Goes(p, "accepted") /\ UNCHANGED <<node, nodeFence, mine, ctx>>
                ELSE IF NODEFENCE => nodeFence[t] = ctx[p].fence /\ ctx[p].fence <= mine[p]
                THEN /\ node' = [node EXCEPT ![t] = "accepted"] /\ nodeFence' = [nodeFence EXCEPT ![t] = mine[p]]
                     /\ Goes(p, "accepted") /\ UNCHANGED <<mine, ctx>>
                ELSE UNCHANGED <<node, nodeFence>> /\ Stops(p)
             /\ UNCHANGED <<fence, others, Notices, World, machine, net, Past>>

Accepted(p) == pc[p] = "accepted" /\ Advance(p, "launched", "accepted")

\* It did not join in time.
PickGiveUp(p) == /\ pc[p] = "acts" /\ Holds(p)
                 /\ \E m \in Machines :
                    /\ Wanted(m) /\ stage[m] = (IF GIVEUPFIRST THEN "giving" ELSE "launched")
                    /\ ctx' = [ctx EXCEPT ![p].m = m, ![p].k = attempt[m]]
                 /\ Goes(p, "close") /\ UNCHANGED <<fence, others, Notices, World, New, Past, mine>>

DecideGiveUp(p) == /\ pc[p] = "acts" /\ Holds(p) /\ GIVEUPFIRST
                   /\ \E m \in Machines : Wanted(m) /\ stage[m] = "launched" /\ ctx' = [ctx EXCEPT ![p].m = m, ![p].k = attempt[m]]
                   /\ Goes(p, "giveup") /\ UNCHANGED <<fence, others, Notices, World, New, Past, mine>>

GiveUp(p) == pc[p] = "giveup" /\ Advance(p, "launched", "giving")

\* The node is read anew, since lists are old.
Close(p) == /\ pc[p] = "close"
            /\ LET t == Token(p) IN
               IF node[t] = "absent" THEN Goes(p, "kill") /\ UNCHANGED <<node, nodeFence, mine, ctx>>
               ELSE IF node[t] = "accepted" THEN Goes(p, "acts") /\ Keeps(p) /\ UNCHANGED <<node, nodeFence, mine>>
               ELSE IF NODEFENCE /\ nodeFence[t] > mine[p] THEN Stops(p) /\ UNCHANGED <<node, nodeFence>>
               ELSE /\ node' = [node EXCEPT ![t] = "closed"] /\ nodeFence' = [nodeFence EXCEPT ![t] = mine[p]]
                    /\ Goes(p, "kill") /\ UNCHANGED <<mine, ctx>>
            /\ UNCHANGED <<fence, others, Notices, World, machine, net, Past>>

Kill(p) == /\ pc[p] = "kill" /\ machine' = [machine EXCEPT ![Token(p)] = IF @ = "runs" THEN "gone" ELSE @]
           /\ Goes(p, "gaveup") /\ UNCHANGED <<fence, others, Notices, World, node, nodeFence, net, Past, mine, ctx>>

GaveUp(p) == pc[p] = "gaveup" /\ Advance(p, IF GIVEUPFIRST THEN "giving" ELSE "launched", "given")

\* What no notice stands for any more, and never came into service.
PickOrphan(p) == /\ pc[p] = "acts" /\ Holds(p)
                 /\ \E t \in Tokens : /\ machine[t] = "runs" /\ node[t] # "accepted" /\ phase[t.m] = "CLOSED"
                                      /\ ctx' = [ctx EXCEPT ![p].m = t.m, ![p].k = t.k] /\ Goes(p, "gcclose")
                 /\ UNCHANGED <<fence, others, Notices, World, New, Past, mine>>

GcClose(p) == /\ pc[p] = "gcclose"
              /\ LET t == Token(p) IN
                 IF node[t] = "absent" THEN Goes(p, "collect") /\ UNCHANGED <<node, nodeFence, ctx>>
                 ELSE IF node[t] = "accepted" THEN Goes(p, "acts") /\ Keeps(p) /\ UNCHANGED <<node, nodeFence>>
                 ELSE node' = [node EXCEPT ![t] = "closed"] /\ nodeFence' = [nodeFence EXCEPT ![t] = IF @ < mine[p] THEN mine[p] ELSE @] /\ Goes(p, "collect") /\ UNCHANGED ctx
              /\ UNCHANGED <<fence, others, Notices, World, machine, net, Past, mine>>

Collect(p) == /\ pc[p] = "collect" /\ machine' = [machine EXCEPT ![Token(p)] = IF @ = "runs" THEN "gone" ELSE @]
              /\ Goes(p, "acts") /\ Keeps(p) /\ UNCHANGED <<fence, others, Notices, World, node, nodeFence, net, Past, mine>>

Steps(p) == \/ Look(p) \/ Acquire(p) \/ Release(p) \/ PickPlan(p) \/ Plan(p) \/ PickGrow(p) \/ Grow(p) \/ Refuse(p) \/ PickLaunch(p) \/ Call(p) \/ Launched(p)
            \/ Record(p) \/ NoAnswer(p) \/ Refused(p) \/ Bump(p) \/ PickAccept(p) \/ Accept(p) \/ Accepted(p) \/ PickGiveUp(p)
            \/ DecideGiveUp(p) \/ GiveUp(p) \/ Close(p) \/ Kill(p) \/ GaveUp(p) \/ PickOrphan(p) \/ GcClose(p) \/ Collect(p)

Urgent(m) == Cordon(m) \/ Cordoned(m) \/ Evict(m) \/ Drained(m) \/ Expire(m) \/ Terminate(m) \/ CloseNotice(m)

Next == \/ \E p \in Procs : Steps(p) \/ Die(p)
        \/ \E m \in Machines : Tell(m, "hint") \/ Tell(m, "interruption") \/ Urgent(m) \/ Schedule(m) \/ Reclaim(m)
        \/ \E t \in Tokens : Launch(t) \/ Join(t)
Spec == Init /\ [][Next]_vars

\* Whatever befalls the lease, a notice is carried to its drain; EC2 takes the machine in the end.
LiveSpec == Spec /\ \A m \in Machines : WF_vars(Urgent(m)) /\ WF_vars(Reclaim(m))

----------------------------------------------------------------------------
\* At most one accepted replacement for each machine.
SpotOnce == \A t, u \in Tokens : node[t] = "accepted" /\ node[u] = "accepted" /\ t.m = u.m => t = u
\* What was accepted is never terminated by giving up or collecting.
AcceptedKept == \A t \in Tokens : node[t] = "accepted" => machine[t] # "gone"
\* What we terminate is closed and empty.
SafeTerminate == ~unsafe
\* A hint closes and terminates nothing before its replacement is accepted.
RebalanceMild == ~hasty
\* Workers that stay, and replacements that are promised or there.
MaxKept == Expected <= MaxWorkers
\* No launch without its attempt being stored.
IntentFirst == \A t \in net \cup {u \in Tokens : machine[u] # "none"} : stage[t.m] # "open" /\ t.k <= attempt[t.m]
\* A closed notice leaves no replacement under way.
NoLostReplacement == \A m \in Machines : phase[m] = "CLOSED" => stage[m] \in {"accepted", "given", "open"}
\* A replacement never goes back to where it was.
OnlyOnward == [][\A m \in Machines : stage[m] \in {"launched", "giving", "accepted", "given"} => stage'[m] \notin {"open", "planned"}]_vars
\* An interrupted machine's node is closed, and its drain ends, whatever the replacement does.
NoticeEnds == \A m \in Machines : (kind[m] = "interruption" /\ phase[m] = "NOTICED") ~> (phase[m] \in {"DRAINED", "EXPIRED", "CLOSED"})
============================================================================
