------------------------------- MODULE Lease -------------------------------
(* The lease alone, with time: it is taken, renewed, given back, lost and run out, by processes whose clocks differ.

   Time is relative: `left` is how long the stored lease still has by true time, `mine[p].left` how long process p's
   own copy of it has. A clock that is ahead by off[p] reads off[p] less of both. A process may pause at any moment,
   for ever, and go on as if nothing had happened; it may die, and its lease stays as it is. *)
EXTENDS Integers, FiniteSets

CONSTANTS
    Procs,       \* processes
    Length,      \* of a lease, in units of time
    Skew,        \* the margin that others leave after its end
    Drift,       \* how far two clocks differ at most
    MaxFence,    \* how many times it is taken
    EXPIRY,      \* "checked": taken from another only when it ran out; "never": not even then; "ignored": at any time
    FENCED,      \* every write carries the fence
    GROWS        \* taking it adds one to the fence

VARIABLES owner, left, fence, mine, off, stale
vars == <<owner, left, fence, mine, off, stale>>

Nobody == "nobody"
None == [fence |-> 0, left |-> 0]
Over == -(Skew + Drift + 1)          \* so long past that it makes no difference
Longest == Length + Drift

TypeOK == /\ owner \in Procs \cup {Nobody}
          /\ left \in Over..Longest
          /\ fence \in 0..MaxFence
          /\ \A p \in Procs : mine[p].fence \in 0..MaxFence /\ mine[p].left \in Over..Longest

Init == /\ owner = Nobody /\ left = 0 /\ fence = 0 /\ stale = FALSE
        /\ mine = [p \in Procs |-> None]
        /\ off \in [Procs -> 0..Drift]

\* By p's own clock.
Expired(p) == left - off[p] < -Skew
Believes(p) == mine[p].fence # 0 /\ mine[p].left - off[p] > 0

Allowed(p) == CASE EXPIRY = "checked" -> owner = Nobody \/ Expired(p)
                [] EXPIRY = "never"   -> owner = Nobody
                [] EXPIRY = "ignored" -> TRUE

Acquire(p) == /\ mine[p].fence = 0 /\ fence < MaxFence /\ Allowed(p)
              /\ fence' = IF GROWS THEN fence + 1 ELSE IF fence = 0 THEN 1 ELSE fence
              /\ owner' = p /\ left' = off[p] + Length
              /\ mine' = [mine EXCEPT ![p] = [fence |-> fence', left |-> off[p] + Length]]
              /\ UNCHANGED <<off, stale>>

Proves(p) == ~FENCED \/ fence = mine[p].fence

Renew(p) == /\ Believes(p) /\ Proves(p) /\ owner = p
            /\ left' = off[p] + Length /\ mine' = [mine EXCEPT ![p].left = off[p] + Length]
            /\ stale' = (stale \/ fence # mine[p].fence)
            /\ UNCHANGED <<owner, fence, off>>

\* Any write to the item, by somebody who holds the lease or thinks so, or has just woken up.
Write(p) == /\ mine[p].fence # 0 /\ Proves(p)
            /\ stale' = (stale \/ fence # mine[p].fence)
            /\ UNCHANGED <<owner, left, fence, mine, off>>

Release(p) == /\ mine[p].fence # 0 /\ Proves(p) /\ owner = p
              /\ owner' = Nobody /\ left' = 0 /\ mine' = [mine EXCEPT ![p] = None]
              /\ stale' = (stale \/ fence # mine[p].fence)
              /\ UNCHANGED <<fence, off>>

\* A write was refused: the process stops.
Stop(p) == mine[p].fence # 0 /\ ~Proves(p) /\ mine' = [mine EXCEPT ![p] = None] /\ UNCHANGED <<owner, left, fence, off, stale>>

\* The last one stays, or nobody could show that it is replaced.
Die(p) == mine[p].fence # 0 /\ fence < MaxFence /\ mine' = [mine EXCEPT ![p] = None] /\ UNCHANGED <<owner, left, fence, off, stale>>

Tick == LET less(n) == IF n > Over THEN n - 1 ELSE n IN
        /\ left' = less(left) /\ mine' = [p \in Procs |-> IF mine[p].fence = 0 THEN None ELSE [mine[p] EXCEPT !.left = less(@)]]
        /\ UNCHANGED <<owner, fence, off, stale>>

Next == Tick \/ \E p \in Procs : Acquire(p) \/ Renew(p) \/ Write(p) \/ Release(p) \/ Stop(p) \/ Die(p)

Spec == Init /\ [][Next]_vars
LiveSpec == Spec /\ WF_vars(Tick) /\ \A p \in Procs : WF_vars(Acquire(p))

----------------------------------------------------------------------------
\* Each acquisition adds exactly one, and nothing else changes it.
FenceMonotone == [][fence' # fence \/ (\E p \in Procs : mine[p].fence = 0 /\ mine'[p].fence # 0) => fence' = fence + 1]_vars

\* Every write that took place carried the fence of that moment.
FencedWrite == ~stale

\* With clocks that differ by no more than the margin, no two believe that they hold it.
OneBeliever == Cardinality({p \in Procs : Believes(p)}) <= 1

\* It never has more than its length to run.
LeaseShort == left <= Longest

\* Whoever died with the lease does not keep it: somebody else takes it.
NotBlocked == (fence < MaxFence /\ \A p \in Procs : mine[p].fence = 0) ~> (\E p \in Procs : mine[p].fence # 0)
============================================================================
