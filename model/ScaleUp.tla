------------------------------ MODULE ScaleUp ------------------------------
(* Scale-up around one item: lease, plan, launches, nodes, verification, cleanup, and the collector of orphans.

   No safety may rest on a clock, so anybody may take the lease at any moment, and every process may pause between any
   two steps and go on much later. Answers are lost, requests are carried out late, processes die anywhere. What is
   read of the state is proven by the fence of the next write; calls to EC2 and Kubernetes are steps of their own, and
   are made even if the lease was lost just before them.

   A machine is named by its token: action, slot, attempt. *)
EXTENDS Naturals, FiniteSets, TLC

CONSTANTS
    Procs, Slots,
    MaxAttempt,  \* attempts at a slot are 0..MaxAttempt
    MaxAct,      \* actions that are begun
    MaxFence,    \* times that the lease is taken
    MaxWorkers,
    \* Each of these is TRUE in the protocol; a mutant makes one FALSE.
    FENCED,      \* every write to the item carries the fence
    ONEACTION,   \* BEGIN wants that no action is under way
    TOKEN,       \* a launch carries a token, so EC2 launches once for it
    INTENT,      \* an attempt is stored before the call that uses it
    REPEATS,     \* a launch whose answer was lost is repeated with the same token
    BUMPWAIT,    \* whoever took the lease over starts no new attempt until the last holder's calls must be over
    NODEFENCE,   \* changes to a node test and write its fence
    CLOSEFIRST,  \* a node is closed before its unjoined machine is terminated, and only while it is not accepted
    CLEANFIRST,  \* unjoined machines are terminated before the action is cleared
    SEQRULE,     \* an orphan is judged by the number of its action
    LOOKHELD,    \* what is decided on was seen after the lease was taken
    CALM         \* for what must happen in the end: nothing that could go on for ever, such as EC2 never answering

VARIABLES
    fence, owner, wait,                \* the lease; `wait`: a takeover was so recent that no attempt may be added
    action, seq, phase, attempt, got,  \* the action in the item
    ended,                             \* how many actions have ended
    machine, net, twice,               \* EC2: machines by token, requests under way, whether a token launched twice
    node, nodeFence,                   \* Kubernetes: "absent", "tainted", "closed" or "accepted"; the fence on it
    refused, collected, stale,         \* history: tokens that were refused; what the collector took; a write without the fence
    pc, mine, took, ctx                \* processes

Item  == <<fence, owner, wait, action, seq, phase, attempt, got, ended>>
Ec2   == <<machine, net, twice>>
Kube  == <<node, nodeFence>>
Past  == <<refused, collected, stale>>
vars  == <<Item, Ec2, Kube, Past, pc, mine, took, ctx>>

Tokens == [a : 1..MaxAct, s : Slots, k : 0..MaxAttempt]
NoToken == [a |-> 0, s |-> 0, k |-> 0]
Nobody == "nobody"
Blank == [t |-> NoToken, fence |-> 0, workers |-> 0, nodes |-> {}, cur |-> 0, seq |-> 0, att |-> [s \in Slots |-> 0]]
Sym == Permutations(Procs)

Init ==
    /\ fence = 0 /\ owner = Nobody /\ wait = FALSE
    /\ action = 0 /\ seq = 0 /\ phase = "none" /\ attempt = [s \in Slots |-> 0] /\ got = [s \in Slots |-> "open"] /\ ended = 0
    /\ machine = [t \in Tokens |-> "none"] /\ net = {} /\ twice = FALSE
    /\ node = [t \in Tokens |-> "absent"] /\ nodeFence = [t \in Tokens |-> 0]
    /\ refused = {} /\ collected = {} /\ stale = FALSE
    /\ pc = [p \in Procs |-> "idle"] /\ mine = [p \in Procs |-> 0] /\ took = [p \in Procs |-> FALSE]
    /\ ctx = [p \in Procs |-> Blank]

Holds(p)   == mine[p] = fence
Proves(p)  == ~FENCED \/ Holds(p)
Current(s) == [a |-> action, s |-> s, k |-> attempt[s]]
Workers    == Cardinality({t \in Tokens : machine[t] = "runs" /\ node[t] = "accepted"})
Goes(p, x) == pc' = [pc EXCEPT ![p] = x]
Keeps(p)   == ctx' = [ctx EXCEPT ![p].t = NoToken, ![p].fence = 0, ![p].cur = 0, ![p].seq = 0, ![p].att = [s \in Slots |-> 0]]
Wrote(p)   == stale' = (stale \/ ~Holds(p))

\* ---- the lease, and a look at the world
\* Machines count from their launch on, joined or not.
View(p) == [ctx[p] EXCEPT !.workers = Cardinality({t \in Tokens : machine[t] = "runs"}), !.nodes = {t \in Tokens : node[t] # "absent"}]

Look(p) == /\ pc[p] = (IF LOOKHELD THEN "held" ELSE "idle")
           /\ ctx' = [ctx EXCEPT ![p] = View(p)] /\ Goes(p, IF LOOKHELD THEN "acts" ELSE "looked")
           /\ UNCHANGED <<Item, Ec2, Kube, Past, mine, took>>

Acquire(p) == /\ pc[p] = (IF LOOKHELD THEN "idle" ELSE "looked") /\ fence < MaxFence
              /\ fence' = fence + 1 /\ owner' = p /\ mine' = [mine EXCEPT ![p] = fence + 1]
              /\ took' = [took EXCEPT ![p] = owner # Nobody]
              /\ Goes(p, IF LOOKHELD THEN "held" ELSE "acts")
              /\ UNCHANGED <<wait, action, seq, phase, attempt, got, ended, Ec2, Kube, Past, ctx>>

Stops(p) == /\ Goes(p, "idle") /\ mine' = [mine EXCEPT ![p] = 0] /\ took' = [took EXCEPT ![p] = FALSE]
            /\ ctx' = [ctx EXCEPT ![p] = Blank]

Release(p) == /\ pc[p] \in {"acts", "done"} /\ Holds(p) /\ fence < MaxFence
              /\ owner' = Nobody /\ wait' = (wait \/ took[p]) /\ Stops(p)
              /\ UNCHANGED <<fence, action, seq, phase, attempt, got, ended, Ec2, Kube, Past>>

Die(p) == pc[p] # "idle" /\ fence < MaxFence /\ Stops(p) /\ UNCHANGED <<Item, Ec2, Kube, Past>>

\* A minute has passed since the takeover: no call of an earlier holder is still to be made.
Settle == /\ wait /\ (\A p \in Procs : pc[p] = "call" => Holds(p)) /\ wait' = FALSE
          /\ UNCHANGED <<fence, owner, action, seq, phase, attempt, got, ended, Ec2, Kube, Past, pc, mine, took, ctx>>

\* ---- begin
Decide(p) == /\ pc[p] = "acts" /\ Holds(p) /\ action = 0 /\ seq < MaxAct
             /\ ctx[p].workers + Cardinality(Slots) <= MaxWorkers
             /\ Goes(p, "begin") /\ UNCHANGED <<Item, Ec2, Kube, Past, mine, took, ctx>>

MayBegin == (ONEACTION => action = 0) /\ seq < MaxAct

Begin(p) == /\ pc[p] = "begin" /\ Proves(p) /\ MayBegin
            /\ seq' = seq + 1 /\ action' = seq + 1 /\ phase' = "LAUNCHING"
            /\ attempt' = [s \in Slots |-> 0] /\ got' = [s \in Slots |-> "open"]
            /\ Wrote(p) /\ Goes(p, "acts") /\ Keeps(p)
            /\ UNCHANGED <<fence, owner, wait, ended, Ec2, Kube, refused, collected, mine, took>>

\* ---- launch
Pick(p) == /\ pc[p] = "acts" /\ Holds(p) /\ phase = "LAUNCHING"
           /\ \E s \in Slots : /\ got[s] = "open" /\ ctx' = [ctx EXCEPT ![p].t = Current(s)]
                               \* What the list shows is adopted; what it does not show is launched, once more perhaps.
                               /\ \/ Goes(p, "call")
                                  \/ machine[Current(s)] = "runs" /\ Goes(p, "record")
           /\ UNCHANGED <<Item, Ec2, Kube, Past, mine, took>>

Call(p) == /\ pc[p] = "call" /\ net' = net \cup {ctx[p].t} /\ Goes(p, "answer")
           /\ UNCHANGED <<Item, machine, twice, Kube, Past, mine, took, ctx>>

Launch(t) == /\ t \in net /\ net' = net \ {t}
             /\ IF machine[t] = "none" THEN machine' = [machine EXCEPT ![t] = "runs"] /\ twice' = twice
                                       ELSE machine' = machine /\ twice' = (twice \/ ~TOKEN)
             /\ UNCHANGED <<Item, Kube, Past, pc, mine, took, ctx>>

Launched(p) == pc[p] = "answer" /\ machine[ctx[p].t] = "runs" /\ Goes(p, "record") /\ UNCHANGED <<Item, Ec2, Kube, Past, mine, took, ctx>>

NoAnswer(p) == /\ pc[p] = "answer" /\ (CALM => ctx[p].t \notin net /\ machine[ctx[p].t] = "none")
               /\ (IF REPEATS THEN Goes(p, "acts") /\ Keeps(p) ELSE Goes(p, "bump") /\ UNCHANGED ctx)
               /\ UNCHANGED <<Item, Ec2, Kube, Past, mine, took>>

MayBump(p) == BUMPWAIT => ~took[p] /\ ~wait

\* A refusal that is certain, for every request under this token so far; a later one may yet launch.
Refused(p) == /\ pc[p] = "answer" /\ (CALM => MayBump(p)) /\ machine[ctx[p].t] = "none"
              /\ net' = net \ {ctx[p].t} /\ refused' = refused \cup {ctx[p].t}
              /\ (IF MayBump(p) THEN Goes(p, "bump") /\ UNCHANGED ctx ELSE Goes(p, "acts") /\ Keeps(p))
              /\ UNCHANGED <<Item, machine, twice, Kube, collected, stale, mine, took>>

SlotFits(p) == /\ action = ctx[p].t.a /\ phase = "LAUNCHING"
               /\ got[ctx[p].t.s] = "open" /\ (attempt[ctx[p].t.s] = ctx[p].t.k \/ ~INTENT)

Record(p) == /\ pc[p] = "record" /\ Proves(p) /\ SlotFits(p)
             /\ got' = [got EXCEPT ![ctx[p].t.s] = "machine"] /\ attempt' = [attempt EXCEPT ![ctx[p].t.s] = ctx[p].t.k]
             /\ Wrote(p) /\ Goes(p, "acts") /\ Keeps(p)
             /\ UNCHANGED <<fence, owner, wait, action, seq, phase, ended, Ec2, Kube, refused, collected, mine, took>>

Bump(p) == /\ pc[p] = "bump" /\ Proves(p) /\ SlotFits(p)
           /\ LET s == ctx[p].t.s k == ctx[p].t.k IN
              IF k = MaxAttempt THEN got' = [got EXCEPT ![s] = "exhausted"] /\ attempt' = attempt /\ Keeps(p) /\ Goes(p, "acts")
              ELSE IF INTENT THEN attempt' = [attempt EXCEPT ![s] = k + 1] /\ got' = got /\ Keeps(p) /\ Goes(p, "acts")
              ELSE ctx' = [ctx EXCEPT ![p].t.k = k + 1] /\ UNCHANGED <<got, attempt>> /\ Goes(p, "call")
           /\ Wrote(p)
           /\ UNCHANGED <<fence, owner, wait, action, seq, phase, ended, Ec2, Kube, refused, collected, mine, took>>

\* A write that is refused: the process stops.
Conflict(p) == /\ \/ pc[p] \in {"record", "bump"} /\ ~(Proves(p) /\ SlotFits(p))
                  \/ pc[p] = "begin" /\ ~(Proves(p) /\ MayBegin)
               /\ Stops(p) /\ UNCHANGED <<Item, Ec2, Kube, Past>>

\* ---- nodes
Join(t) == /\ machine[t] = "runs" /\ node[t] = "absent" /\ node' = [node EXCEPT ![t] = "tainted"]
           /\ UNCHANGED <<Item, Ec2, nodeFence, Past, pc, mine, took, ctx>>

\* ---- verify
Enters(p, x) == /\ Holds(p) /\ phase' = x /\ Wrote(p)
                /\ UNCHANGED <<fence, owner, wait, action, seq, attempt, got, ended, Ec2, Kube, refused, collected, pc, mine, took, ctx>>

Verify(p) == /\ pc[p] = "acts" /\ phase = "LAUNCHING" /\ \A s \in Slots : got[s] # "open"
             /\ Enters(p, IF \E s \in Slots : got[s] = "machine" THEN "VERIFYING" ELSE "CLEANUP")

PickAccept(p) == /\ pc[p] = "acts" /\ Holds(p) /\ phase = "VERIFYING"
                 /\ \E s \in Slots : LET t == Current(s) IN
                    /\ got[s] = "machine" /\ t \in ctx[p].nodes /\ machine[t] = "runs" /\ node[t] \in {"tainted", "closed"}
                    /\ ctx' = [ctx EXCEPT ![p].t = t, ![p].fence = nodeFence[t]]
                 /\ Goes(p, "accept") /\ UNCHANGED <<Item, Ec2, Kube, Past, mine, took>>

\* The node's fence is still the one that was read, and no higher than ours.
NodeFits(p) == NODEFENCE => nodeFence[ctx[p].t] = ctx[p].fence /\ ctx[p].fence <= mine[p]

Accept(p) == /\ pc[p] = "accept"
             /\ IF NodeFits(p) /\ node[ctx[p].t] # "absent"
                THEN /\ node' = [node EXCEPT ![ctx[p].t] = "accepted"] /\ nodeFence' = [nodeFence EXCEPT ![ctx[p].t] = mine[p]]
                     /\ Goes(p, "acts") /\ Keeps(p) /\ UNCHANGED <<mine, took>>
                ELSE UNCHANGED Kube /\ (IF Holds(p) THEN Goes(p, "acts") /\ Keeps(p) /\ UNCHANGED <<mine, took>> ELSE Stops(p))
             /\ UNCHANGED <<Item, Ec2, Past>>

JoinTimeout(p) == pc[p] = "acts" /\ phase = "VERIFYING" /\ Enters(p, "CLEANUP")

\* ---- clean up
Unjoined(s) == got[s] = "machine" /\ node[Current(s)] # "accepted"

PickUnjoined(p) == /\ pc[p] = "acts" /\ Holds(p) /\ phase = "CLEANUP" /\ CLEANFIRST
                   /\ \E s \in Slots : LET t == Current(s) IN
                      /\ got[s] = "machine" /\ machine[t] = "runs" /\ (CALM => node[t] # "accepted") /\ ctx' = [ctx EXCEPT ![p].t = t]
                   /\ Goes(p, "close") /\ UNCHANGED <<Item, Ec2, Kube, Past, mine, took>>

\* The node is read anew, since lists are old. One step: its read and its write are tied by the node's version.
CloseNode(p, next) ==
    LET t == ctx[p].t IN
    IF ~CLOSEFIRST \/ node[t] = "absent" THEN Goes(p, next) /\ UNCHANGED <<Kube, mine, took, ctx>>
    ELSE IF node[t] = "accepted" THEN Goes(p, "acts") /\ Keeps(p) /\ UNCHANGED <<Kube, mine, took>>
    ELSE IF NODEFENCE /\ nodeFence[t] > mine[p] THEN Stops(p) /\ UNCHANGED Kube
    ELSE /\ node' = [node EXCEPT ![t] = "closed"] /\ nodeFence' = [nodeFence EXCEPT ![t] = mine[p]]
         /\ Goes(p, next) /\ UNCHANGED <<mine, took, ctx>>

Close(p) == pc[p] = "close" /\ CloseNode(p, "kill") /\ UNCHANGED <<Item, Ec2, Past>>

Kill(p) == /\ pc[p] = "kill" /\ machine' = [machine EXCEPT ![ctx[p].t] = IF @ = "runs" THEN "gone" ELSE @]
           /\ Goes(p, "acts") /\ Keeps(p) /\ UNCHANGED <<Item, net, twice, Kube, Past, mine, took>>

\* Nothing is begun before another look: the cooldown or the back-off has just started.
End(p) == /\ Holds(p) /\ action' = 0 /\ phase' = "none" /\ ended' = ended + 1 /\ Wrote(p) /\ Goes(p, "done")
          /\ UNCHANGED <<fence, owner, wait, seq, attempt, got, Ec2, Kube, refused, collected, mine, took, ctx>>

Complete(p) == /\ pc[p] = "acts" /\ phase = "VERIFYING" /\ (\A s \in Slots : ~Unjoined(s)) /\ End(p)

Clear(p) == /\ pc[p] = "acts" /\ phase = "CLEANUP"
            /\ (CLEANFIRST => \A s \in Slots : Unjoined(s) => machine[Current(s)] = "gone") /\ End(p)

\* ---- collect: the state is read first, the machines later
GcRead(p) == /\ pc[p] = "acts" /\ Holds(p) /\ ~CALM /\ ctx' = [ctx EXCEPT ![p].cur = action, ![p].seq = seq, ![p].att = attempt]
             /\ Goes(p, "gclist") /\ UNCHANGED <<Item, Ec2, Kube, Past, mine, took>>

Orphan(p, t) == LET c == ctx[p] IN
    IF SEQRULE THEN t.a <= c.seq /\ (t.a # c.cur \/ t.k < c.att[t.s]) ELSE t.a # c.cur

GcList(p) == /\ pc[p] = "gclist"
             /\ \/ \E t \in Tokens : /\ machine[t] = "runs" /\ node[t] # "accepted" /\ Orphan(p, t)
                                     /\ ctx' = [ctx EXCEPT ![p].t = t] /\ Goes(p, "gcclose")
                \/ Goes(p, "acts") /\ Keeps(p)
             /\ UNCHANGED <<Item, Ec2, Kube, Past, mine, took>>

GcClose(p) == pc[p] = "gcclose" /\ CloseNode(p, "gckill") /\ UNCHANGED <<Item, Ec2, Past>>

GcKill(p) == /\ pc[p] = "gckill" /\ machine' = [machine EXCEPT ![ctx[p].t] = IF @ = "runs" THEN "gone" ELSE @]
             /\ collected' = collected \cup {ctx[p].t} /\ Goes(p, "acts") /\ Keeps(p)
             /\ UNCHANGED <<Item, net, twice, Kube, refused, stale, mine, took>>

Steps(p) == \/ Look(p) \/ Acquire(p) \/ Release(p) \/ Decide(p) \/ Begin(p) \/ Pick(p) \/ Call(p) \/ Launched(p) \/ NoAnswer(p)
            \/ Refused(p) \/ Record(p) \/ Bump(p) \/ Conflict(p) \/ Verify(p) \/ PickAccept(p) \/ Accept(p)
            \/ JoinTimeout(p) \/ PickUnjoined(p) \/ Close(p) \/ Kill(p) \/ Complete(p) \/ Clear(p)
            \/ GcRead(p) \/ GcList(p) \/ GcClose(p) \/ GcKill(p)

Next == Settle \/ (\E p \in Procs : Steps(p) \/ Die(p)) \/ \E t \in Tokens : Launch(t) \/ Join(t)
Spec == Init /\ [][Next]_vars

\* What goes on by itself, if the process is not dead: everything that carries an action to its end.
GoesOn(p) == \/ Look(p) \/ Acquire(p) \/ Begin(p) \/ Pick(p) \/ Call(p) \/ Launched(p) \/ NoAnswer(p) \/ Record(p) \/ Bump(p) \/ Conflict(p)
             \/ Verify(p) \/ Accept(p) \/ JoinTimeout(p) \/ PickUnjoined(p) \/ Close(p) \/ Kill(p) \/ Complete(p) \/ Clear(p)
             \/ GcList(p) \/ GcClose(p) \/ GcKill(p)
LiveSpec == Spec /\ WF_vars(Settle) /\ (\A p \in Procs : WF_vars(GoesOn(p))) /\ \A t \in Tokens : WF_vars(Launch(t))

----------------------------------------------------------------------------
\* Every write that took place carried the fence of that moment.
FencedWrite == ~stale
\* At most one BEGIN between two ends.
OneAction == seq - ended = (IF action = 0 THEN 0 ELSE 1)
\* No launch without its attempt being stored.
IntentFirst == \A t \in net \cup {u \in Tokens : machine[u] # "none"} : t.a <= seq /\ (t.a = action => t.k <= attempt[t.s])
\* One machine for a token.
TokenOnce == ~twice
\* Another attempt only after a refusal that is certain.
AmbiguousRepeats == action # 0 => \A s \in Slots : attempt[s] > 0 => [a |-> action, s |-> s, k |-> attempt[s] - 1] \in refused
\* At most one accepted worker for a slot.
SlotOne == \A t, u \in Tokens : node[t] = "accepted" /\ node[u] = "accepted" /\ t.a = u.a /\ t.s = u.s => t = u
\* With pauses that end within the minute, not even two machines.
OneRun == \A t, u \in Tokens : machine[t] = "runs" /\ machine[u] = "runs" /\ t.a = u.a /\ t.s = u.s => t = u
\* What was accepted is never terminated by launching, cleaning up or collecting.
AcceptedKept == \A t \in Tokens : node[t] = "accepted" => machine[t] # "gone"
\* The collector never takes what a slot waits for.
CollectorSafe == \A t \in collected : ~(t.a = action /\ phase = "LAUNCHING" /\ t.k = attempt[t.s])
\* An action that has ended leaves no recorded machine that runs without being accepted.
CleanBeforeClear == (action = 0 /\ seq > 0) => \A s \in Slots : got[s] = "machine" =>
                       LET t == [a |-> seq, s |-> s, k |-> attempt[s]] IN node[t] = "accepted" \/ machine[t] = "gone"
MaxKept == Workers + (IF phase = "LAUNCHING" THEN Cardinality({s \in Slots : got[s] = "open"}) ELSE 0) <= MaxWorkers
\* An action ends.
NoStuckAction == (action # 0) ~> (action = 0)
============================================================================
