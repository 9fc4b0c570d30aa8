----------------------------- MODULE ScaleDown -----------------------------
(* Scale-down around one item: lease, plan, cordon, drain, commit, terminate, give up; beside it spot, which takes
   machines whatever we do, and whose cordon waits for no lease.

   The same adversary as in ScaleUp: anybody may take the lease at any moment, and every process may pause between any
   two steps and go on much later. *)
EXTENDS Naturals, FiniteSets, TLC

CONSTANTS
    Procs, Nodes,
    Batch,       \* how many targets an action has
    MaxAct, MaxFence, MinWorkers,
    SPOT,        \* whether spot takes machines
    CRITICAL,    \* whether a pod that must not be moved may come to a node
    OLDLISTS,    \* whether a list of pods may be old
    \* Each of these is TRUE in the protocol; a mutant makes one FALSE.
    FENCED,      \* every write to the item carries the fence
    ONEACTION,   \* BEGIN wants that no action is under way
    PLANFIRST,   \* the targets are stored before the first of them is touched
    NODEFENCE,   \* changes to a node test and write its fence
    STAMPFIRST,  \* before COMMIT the node gets our fence, and its pods are looked at once more
    COMMITFIRST, \* a termination is stored before it is asked for
    IRREVOCABLE, \* with something committed nothing is given up
    UNCORDON,    \* giving up opens what we closed, before the action is cleared
    SPOTSTAYS,   \* what spot closed is not opened
    SWEEPS       \* a node that an ended action left closed is opened

VARIABLES
    fence, owner,                         \* the lease
    action, seq, phase, target, ended,    \* the action in the item; a target is "no", "open", "committed" or "done"
    closed, by, nodeFence, spotted,       \* Kubernetes: cordoned, for which action, under which fence; by spot, too
    pods, alive, notice,                  \* "none", "plain" or "critical" pods on a node; machines; what spot announced
    unsafe, unplanned, forced, stale,     \* history: what must not have happened
    pc, mine, ctx

Item  == <<fence, owner, action, seq, phase, target, ended>>
Kube  == <<closed, by, nodeFence, spotted>>
World == <<pods, alive, notice>>
Past  == <<unsafe, unplanned, forced, stale>>
vars  == <<Item, Kube, World, Past, pc, mine, ctx>>

Nobody == "nobody"
NoNode == "none"
Blank == [n |-> NoNode, fence |-> 0, a |-> 0, workers |-> 0, plan |-> {}]
Sym == Permutations(Procs) \cup Permutations(Nodes)

Init ==
    /\ fence = 0 /\ owner = Nobody
    /\ action = 0 /\ seq = 0 /\ phase = "none" /\ target = [n \in Nodes |-> "no"] /\ ended = 0
    /\ closed = [n \in Nodes |-> FALSE] /\ by = [n \in Nodes |-> 0] /\ nodeFence = [n \in Nodes |-> 0] /\ spotted = [n \in Nodes |-> FALSE]
    /\ pods = [n \in Nodes |-> "plain"] /\ alive = [n \in Nodes |-> TRUE] /\ notice = [n \in Nodes |-> FALSE]
    /\ unsafe = FALSE /\ unplanned = FALSE /\ forced = FALSE /\ stale = FALSE
    /\ pc = [p \in Procs |-> "idle"] /\ mine = [p \in Procs |-> 0] /\ ctx = [p \in Procs |-> Blank]

Holds(p)   == mine[p] = fence
Proves(p)  == ~FENCED \/ Holds(p)
Goes(p, x) == pc' = [pc EXCEPT ![p] = x]
Forgets(p) == ctx' = [ctx EXCEPT ![p] = Blank]
Stops(p)   == Goes(p, "idle") /\ Forgets(p) /\ mine' = [mine EXCEPT ![p] = 0]
\* A change to a node was refused: another look, or the end for one who has lost the lease.
Again(p)   == IF Holds(p) THEN Goes(p, "acts") /\ Forgets(p) /\ mine' = mine ELSE Stops(p)
Wrote(p)   == stale' = (stale \/ ~Holds(p))
Staying    == {n \in Nodes : alive[n] /\ ~notice[n]}
Open       == {n \in Nodes : target[n] = "open"}
Committed  == {n \in Nodes : target[n] = "committed"}

\* ---- the lease
Acquire(p) == /\ pc[p] = "idle" /\ fence < MaxFence /\ fence' = fence + 1 /\ owner' = p
              /\ mine' = [mine EXCEPT ![p] = fence + 1] /\ Goes(p, "acts")
              /\ UNCHANGED <<action, seq, phase, target, ended, Kube, World, Past, ctx>>

Release(p) == /\ pc[p] = "acts" /\ Holds(p) /\ fence < MaxFence /\ owner' = Nobody /\ Stops(p)
              /\ UNCHANGED <<fence, action, seq, phase, target, ended, Kube, World, Past>>

Die(p) == pc[p] # "idle" /\ fence < MaxFence /\ Stops(p) /\ UNCHANGED <<Item, Kube, World, Past>>

\* ---- begin
Decide(p) == /\ pc[p] = "acts" /\ Holds(p) /\ action = 0 /\ seq < MaxAct
             /\ \E plan \in SUBSET {n \in Staying : pods[n] # "critical"} :
                /\ Cardinality(plan) = Batch /\ Cardinality(Staying) - Batch >= MinWorkers
                /\ ctx' = [ctx EXCEPT ![p].plan = plan]
             /\ Goes(p, "begin") /\ UNCHANGED <<Item, Kube, World, Past, mine>>

MayBegin == (ONEACTION => action = 0) /\ seq < MaxAct

Begin(p) == /\ pc[p] = "begin" /\ Proves(p) /\ MayBegin
            /\ seq' = seq + 1 /\ action' = seq + 1 /\ phase' = "DRAINING"
            /\ target' = [n \in Nodes |-> IF n \in ctx[p].plan THEN "open" ELSE "no"]
            /\ Wrote(p) /\ Goes(p, "acts") /\ Forgets(p)
            /\ UNCHANGED <<fence, owner, ended, Kube, World, unsafe, unplanned, forced, mine>>

\* ---- nodes. Looked at in one step, changed in a later one.
LooksAt(p, n) == ctx' = [ctx EXCEPT ![p].n = n, ![p].fence = nodeFence[n], ![p].a = action]
NodeFits(p)   == NODEFENCE => nodeFence[ctx[p].n] = ctx[p].fence /\ ctx[p].fence <= mine[p]
IsClosedBy(n) == closed[n] /\ by[n] = action

PickCordon(p) == /\ pc[p] = "acts" /\ Holds(p)
                 /\ \E n \in Nodes : /\ alive[n] /\ ~IsClosedBy(n) /\ pods[n] # "critical" /\ LooksAt(p, n)
                                     /\ IF PLANFIRST THEN phase = "DRAINING" /\ target[n] = "open" ELSE n \in Staying
                 /\ Goes(p, "cordon") /\ UNCHANGED <<Item, Kube, World, Past, mine>>

Cordon(p) == /\ pc[p] = "cordon"
             /\ LET n == ctx[p].n IN
                IF NodeFits(p) THEN /\ closed' = [closed EXCEPT ![n] = TRUE] /\ by' = [by EXCEPT ![n] = ctx[p].a]
                                    /\ nodeFence' = [nodeFence EXCEPT ![n] = mine[p]]
                                    /\ unplanned' = (unplanned \/ ctx[p].a = 0)
                                    /\ Goes(p, "acts") /\ Forgets(p) /\ mine' = mine
                ELSE UNCHANGED <<closed, by, nodeFence, unplanned>> /\ Again(p)
             /\ UNCHANGED <<Item, spotted, World, unsafe, forced, stale>>

PickEvict(p) == /\ pc[p] = "acts" /\ Holds(p) /\ phase = "DRAINING"
                /\ \E n \in Open : IsClosedBy(n) /\ pods[n] = "plain" /\ LooksAt(p, n)
                /\ Goes(p, "evict") /\ UNCHANGED <<Item, Kube, World, Past, mine>>

\* Pods are listed anew before any is asked to leave: one that must stay stops it.
Evict(p) == /\ pc[p] = "evict"
            /\ pods' = [pods EXCEPT ![ctx[p].n] = IF @ = "plain" THEN "none" ELSE @]
            /\ Goes(p, "acts") /\ Forgets(p) /\ UNCHANGED <<Item, Kube, alive, notice, Past, mine>>

PickCommit(p) == /\ pc[p] = "acts" /\ Holds(p) /\ phase = "DRAINING"
                 /\ \E n \in Open : alive[n] /\ IsClosedBy(n) /\ (OLDLISTS \/ pods[n] = "none") /\ LooksAt(p, n)
                 /\ Goes(p, IF ~STAMPFIRST THEN (IF COMMITFIRST THEN "commit" ELSE "kill") ELSE "stamp")
                 /\ UNCHANGED <<Item, Kube, World, Past, mine>>

\* Our fence on the node, then a last look at its pods: from here on nobody older can open it.
Stamp(p) == /\ pc[p] = "stamp"
            /\ LET n == ctx[p].n IN
               IF closed[n] /\ by[n] = ctx[p].a /\ (NODEFENCE => nodeFence[n] <= mine[p])
               THEN /\ nodeFence' = [nodeFence EXCEPT ![n] = IF NODEFENCE THEN mine[p] ELSE @]
                    /\ Goes(p, "check") /\ UNCHANGED <<mine, ctx>>
               ELSE UNCHANGED nodeFence /\ Again(p)
            /\ UNCHANGED <<Item, closed, by, spotted, World, Past>>

Check(p) == /\ pc[p] = "check"
            /\ IF pods[ctx[p].n] = "none" THEN Goes(p, IF COMMITFIRST THEN "commit" ELSE "kill") /\ UNCHANGED ctx
                                          ELSE Goes(p, "acts") /\ Forgets(p)
            /\ UNCHANGED <<Item, Kube, World, Past, mine>>

Fits(p) == action = ctx[p].a /\ phase = "DRAINING" /\ target[ctx[p].n] = "open"

Commit(p) == /\ pc[p] = "commit" /\ Proves(p) /\ Fits(p)
             /\ target' = [target EXCEPT ![ctx[p].n] = "committed"]
             /\ phase' = IF Open = {ctx[p].n} THEN "TERMINATING" ELSE phase
             /\ Wrote(p) /\ Goes(p, "acts") /\ Forgets(p)
             /\ UNCHANGED <<fence, owner, action, seq, ended, Kube, World, unsafe, unplanned, forced, mine>>

PickKill(p) == /\ pc[p] = "acts" /\ Holds(p) /\ (\E n \in Committed : LooksAt(p, n)) /\ Goes(p, "kill")
               /\ UNCHANGED <<Item, Kube, World, Past, mine>>

\* Not fenced, and as late as one likes.
Kill(p) == /\ pc[p] = "kill"
           /\ LET n == ctx[p].n IN
              /\ unsafe' = (unsafe \/ (alive[n] /\ ~notice[n] /\ (pods[n] # "none" \/ ~closed[n])))
              /\ unplanned' = (unplanned \/ (alive[n] /\ ~(action = ctx[p].a /\ target[n] = "committed") /\ ~COMMITFIRST))
              /\ alive' = [alive EXCEPT ![n] = FALSE] /\ pods' = [pods EXCEPT ![n] = "none"]
           /\ Goes(p, "done") /\ UNCHANGED <<Item, Kube, notice, forced, stale, mine, ctx>>

DoneFits(p) == action = ctx[p].a /\ (target[ctx[p].n] = "committed" \/ (~COMMITFIRST /\ target[ctx[p].n] = "open"))

Done(p) == /\ pc[p] = "done" /\ Proves(p) /\ DoneFits(p)
           /\ target' = [target EXCEPT ![ctx[p].n] = "done"] /\ Wrote(p) /\ Goes(p, "acts") /\ Forgets(p)
           /\ UNCHANGED <<fence, owner, action, seq, phase, ended, Kube, World, unsafe, unplanned, forced, mine>>

Conflict(p) == /\ \/ pc[p] = "begin" /\ ~(Proves(p) /\ MayBegin)
                  \/ pc[p] = "commit" /\ ~(Proves(p) /\ Fits(p))
                  \/ pc[p] = "done" /\ ~(Proves(p) /\ DoneFits(p))
               /\ Stops(p) /\ UNCHANGED <<Item, Kube, World, Past>>

\* A target that vanished by itself.
Gone(p) == /\ pc[p] = "acts" /\ Holds(p) /\ phase = "DRAINING" /\ Wrote(p)
           /\ \E n \in Open : ~alive[n] /\ target' = [target EXCEPT ![n] = "done"]
           /\ UNCHANGED <<fence, owner, action, seq, phase, ended, Kube, World, unsafe, unplanned, forced, pc, mine, ctx>>

End(p) == /\ Holds(p) /\ action' = 0 /\ phase' = "none" /\ target' = [n \in Nodes |-> "no"] /\ ended' = ended + 1 /\ Wrote(p)
          /\ UNCHANGED <<fence, owner, seq, Kube, World, unsafe, unplanned, pc, mine, ctx>>

Complete(p) == /\ pc[p] = "acts" /\ phase \in {"DRAINING", "TERMINATING"} /\ Open = {} /\ Committed = {} /\ End(p) /\ forced' = forced

\* ---- give up: a pod forbids it, or it takes too long
Abort(p) == /\ pc[p] = "acts" /\ Holds(p) /\ phase = "DRAINING" /\ Open # {} /\ (IRREVOCABLE => Committed = {})
            /\ phase' = "ABORTING" /\ Wrote(p)
            /\ UNCHANGED <<fence, owner, action, seq, target, ended, Kube, World, unsafe, unplanned, forced, pc, mine, ctx>>

PickUncordon(p) == /\ pc[p] = "acts" /\ Holds(p) /\ phase = "ABORTING" /\ UNCORDON
                   /\ \E n \in Open \cup Committed : alive[n] /\ IsClosedBy(n) /\ LooksAt(p, n)
                   /\ Goes(p, "uncordon") /\ UNCHANGED <<Item, Kube, World, Past, mine>>

\* An action that is not under way any more, and its cordon came late.
PickLeftover(p) == /\ pc[p] = "acts" /\ Holds(p) /\ SWEEPS
                   /\ \E n \in Nodes : alive[n] /\ by[n] # 0 /\ by[n] # action /\ target[n] = "no" /\ LooksAt(p, n)
                   /\ Goes(p, "uncordon") /\ UNCHANGED <<Item, Kube, World, Past, mine>>

Uncordon(p) == /\ pc[p] = "uncordon"
               /\ LET n == ctx[p].n IN
                  IF NodeFits(p) THEN /\ closed' = [closed EXCEPT ![n] = SPOTSTAYS /\ spotted[n]] /\ by' = [by EXCEPT ![n] = 0]
                                      /\ nodeFence' = [nodeFence EXCEPT ![n] = mine[p]]
                                      /\ forced' = (forced \/ (target[n] = "committed" /\ alive[n]))
                                      /\ Goes(p, "acts") /\ Forgets(p) /\ mine' = mine
                  ELSE UNCHANGED <<closed, by, nodeFence, forced>> /\ Again(p)
               /\ UNCHANGED <<Item, spotted, World, unsafe, unplanned, stale>>

Clear(p) == /\ pc[p] = "acts" /\ phase = "ABORTING" /\ (IRREVOCABLE => Committed = {})
            /\ (UNCORDON => \A n \in Open \cup Committed : alive[n] => ~IsClosedBy(n))
            /\ End(p) /\ forced' = (forced \/ Committed # {})

\* ---- the world
Schedule(n) == /\ alive[n] /\ ~closed[n] /\ pods[n] = "none" /\ pods' = [pods EXCEPT ![n] = "plain"]
               /\ UNCHANGED <<Item, Kube, alive, notice, Past, pc, mine, ctx>>

Critical(n) == /\ CRITICAL /\ alive[n] /\ ~closed[n] /\ pods[n] # "critical" /\ pods' = [pods EXCEPT ![n] = "critical"]
               /\ UNCHANGED <<Item, Kube, alive, notice, Past, pc, mine, ctx>>

Notice(n) == /\ SPOT /\ alive[n] /\ ~notice[n] /\ notice' = [notice EXCEPT ![n] = TRUE]
             /\ UNCHANGED <<Item, Kube, pods, alive, Past, pc, mine, ctx>>

\* Needs no lease; tied by the node's version.
SpotCordon(n) == /\ notice[n] /\ alive[n] /\ ~spotted[n] /\ spotted' = [spotted EXCEPT ![n] = TRUE] /\ closed' = [closed EXCEPT ![n] = TRUE]
                 /\ UNCHANGED <<Item, by, nodeFence, World, Past, pc, mine, ctx>>

Reclaim(n) == /\ notice[n] /\ alive[n] /\ alive' = [alive EXCEPT ![n] = FALSE] /\ pods' = [pods EXCEPT ![n] = "none"]
              /\ UNCHANGED <<Item, Kube, notice, Past, pc, mine, ctx>>

Steps(p) == \/ Acquire(p) \/ Release(p) \/ Decide(p) \/ Begin(p) \/ PickCordon(p) \/ Cordon(p) \/ PickEvict(p) \/ Evict(p)
            \/ PickCommit(p) \/ Stamp(p) \/ Check(p) \/ Commit(p) \/ PickKill(p) \/ Kill(p) \/ Done(p) \/ Conflict(p) \/ Gone(p)
            \/ Complete(p) \/ Abort(p) \/ PickUncordon(p) \/ PickLeftover(p) \/ Uncordon(p) \/ Clear(p)

Next == (\E p \in Procs : Steps(p) \/ Die(p)) \/ \E n \in Nodes : Schedule(n) \/ Critical(n) \/ Notice(n) \/ SpotCordon(n) \/ Reclaim(n)
Spec == Init /\ [][Next]_vars

\* What goes on by itself, if the process is not dead. An action that cannot go on is given up in the end.
GoesOn(p) == \/ Acquire(p) \/ Begin(p) \/ Cordon(p) \/ Evict(p) \/ Stamp(p) \/ Check(p) \/ Commit(p) \/ PickKill(p) \/ Kill(p)
             \/ Done(p) \/ Conflict(p) \/ Gone(p) \/ Complete(p) \/ Abort(p) \/ PickUncordon(p) \/ PickLeftover(p) \/ Uncordon(p) \/ Clear(p)
LiveSpec == Spec /\ \A p \in Procs : WF_vars(GoesOn(p))

----------------------------------------------------------------------------
\* Every write that took place carried the fence of that moment.
FencedWrite == ~stale
\* At most one BEGIN between two ends.
OneAction == seq - ended = (IF action = 0 THEN 0 ELSE 1)
\* What is terminated is closed and holds no pod, unless spot takes it anyway.
SafeTerminate == ~unsafe
\* What is committed stays closed, and is never given up.
CommitIrrevocable == ~forced /\ \A n \in Committed : alive[n] => closed[n]
\* No cordon without a stored plan, no termination without a stored commitment.
PlanFirst == ~unplanned
\* A pod that must not be moved stays where it is.
CriticalStops == \A n \in Committed : pods[n] # "critical"
\* Our own terminations leave the minimum.
MinKept == Cardinality({n \in Nodes : alive[n] \/ notice[n]}) >= MinWorkers
\* What spot closed stays closed.
SpotIndependent == \A n \in Nodes : spotted[n] /\ alive[n] => closed[n]
\* An action ends.
NoStuckAction == (action # 0) ~> (action = 0)
\* No node stays closed for an action that is over.
NoLeakedCordon == \A n \in Nodes : (alive[n] /\ by[n] # 0 /\ action = 0) ~> (~alive[n] \/ by[n] = 0 \/ action # 0)
============================================================================
