------------------------------ MODULE Opening ------------------------------
(* A machine that was to leave, and stays: the race of emptying its node and of opening it again.

   One machine, one notice after the other, the phases of src/holdfast/cluster/spot/workflow.py with OPENING among them. Nobody
   holds a lease here. The same adversary as in ScaleUp: a process may stop between any two steps and go on much later,
   or die. Each read, write and call is a step of its own. A hint stands for a node that is NotReady as well: of both,
   nobody is about to take the machine. When EC2 takes an interrupted one, or that it does not, is its own business. *)
EXTENDS Naturals, FiniteSets, TLC

CONSTANTS
    Procs, MaxNotices, MaxDeaths,
    \* Each of these is TRUE in the protocol; a mutant makes one FALSE.
    STORED,      \* that a node is to be opened is stored before it is opened
    PHASECAS,    \* DRAINED and OPENING are written over the phase that was read
    NOTICECAS,   \* and phases over those of the notice that was read: a machine may be given notice of again
    MARKED,      \* a cordon names its notice: no other counts as closed, and no other is undone
    VERIFIED,    \* between reading a node and closing it, the notice is read once more
    NODEFIRST,   \* the sweeper reads the node before it reads that no notice is open
    SWEEPS       \* a cordon whose notice is over is undone

VARIABLES
    kind, phase, epoch,         \* the notice; its epoch names it
    closed, mark, pods, alive,  \* the node: closed, by the cordon of which notice (0: none); the machine
    unsafe, opened, killed,     \* history: what must not have happened; the notices that opened, and that terminated
    deaths, pc, ctx

Notice == <<kind, phase, epoch>>
World  == <<closed, mark, pods, alive>>
Past   == <<unsafe, opened, killed>>
vars   == <<Notice, World, Past, deaths, pc, ctx>>

Blank == [phase |-> "none", kind |-> "none", epoch |-> 0, mark |-> 0, closed |-> FALSE, fresh |-> FALSE]
Sym == Permutations(Procs)

Init ==
    /\ kind = "none" /\ phase = "none" /\ epoch = 0
    /\ closed = FALSE /\ mark = 0 /\ pods = TRUE /\ alive = TRUE
    /\ unsafe = FALSE /\ opened = {} /\ killed = {} /\ deaths = 0
    /\ pc = [p \in Procs |-> "idle"] /\ ctx = [p \in Procs |-> Blank]

Goes(p, x) == pc' = [pc EXCEPT ![p] = x]
Stops(p)   == Goes(p, "idle") /\ ctx' = [ctx EXCEPT ![p] = Blank]
IsOver     == phase \in {"none", "CLOSED"}

\* ---- the world
\* An interruption replaces a hint that nothing was done for, and follows at once on a machine that stays.
Tell(k) == /\ alive /\ epoch < MaxNotices
           /\ IsOver \/ (k = "interruption" /\ (phase = "OPENING" \/ (phase \in {"NOTICED", "CORDONED"} /\ kind = "hint")))
           /\ kind' = k /\ phase' = "NOTICED" /\ epoch' = epoch + 1 /\ UNCHANGED <<World, Past, pc, ctx>>

Schedule == alive /\ ~closed /\ ~pods /\ pods' = TRUE /\ UNCHANGED <<Notice, closed, mark, alive, Past, pc, ctx>>
Reclaim  == alive /\ kind = "interruption" /\ alive' = FALSE /\ pods' = FALSE /\ UNCHANGED <<Notice, closed, mark, Past, pc, ctx>>

\* ---- a look, and what follows from it
Look(p) == /\ pc[p] = "idle" /\ ~IsOver /\ Goes(p, "acts")
           /\ ctx' = [ctx EXCEPT ![p] = [Blank EXCEPT !.phase = phase, !.kind = kind, !.epoch = epoch]]
           /\ UNCHANGED <<Notice, World, Past>>

Follows(p) == CASE ctx[p].phase = "NOTICED"  -> {"readcordon"}
                [] ctx[p].phase = "CORDONED" -> {"readcordon", "evict", "check", "open"} \cup (IF ctx[p].kind = "interruption" THEN {"expire"} ELSE {})
                [] ctx[p].phase = "DRAINED"  -> {"kill"} \cup (IF ctx[p].kind = "hint" THEN {"readcordon", "evict"} ELSE {})
                [] ctx[p].phase = "EXPIRED"  -> {"open"}
                [] OTHER                     -> {"readopen"}

Choose(p) == pc[p] = "acts" /\ (\E x \in Follows(p) : Goes(p, x)) /\ UNCHANGED <<Notice, World, Past, ctx>>
Die(p)    == pc[p] # "idle" /\ deaths < MaxDeaths /\ deaths' = deaths + 1 /\ Stops(p) /\ UNCHANGED <<Notice, World, Past>>

\* ---- the node: read in one step, changed in a later one, if nobody has changed it in between
Reads(p) == ctx' = [ctx EXCEPT ![p].mark = mark, ![p].closed = closed, ![p].fresh = TRUE]
Changes(p, isClosed, m) == /\ closed' = isClosed /\ mark' = m
                           /\ ctx' = [q \in Procs |-> [ctx[q] EXCEPT !.fresh = FALSE]]
IsOwn(p) == IF MARKED THEN ctx[p].mark = ctx[p].epoch ELSE ctx[p].mark # 0

ReadCordon(p) == pc[p] = "readcordon" /\ Reads(p) /\ Goes(p, IF VERIFIED THEN "verify" ELSE "cordon") /\ UNCHANGED <<Notice, World, Past>>
Verify(p) == /\ pc[p] = "verify" /\ UNCHANGED <<Notice, World, Past>>
             /\ IF epoch = ctx[p].epoch /\ phase \in {"NOTICED", "CORDONED", "DRAINED"} THEN Goes(p, "cordon") /\ ctx' = ctx ELSE Stops(p)
Cordon(p) == /\ pc[p] = "cordon"
             /\ IF ctx[p].closed /\ IsOwn(p) THEN Goes(p, "cordoned") /\ UNCHANGED <<closed, mark, ctx>>
                ELSE IF ctx[p].fresh THEN Changes(p, TRUE, ctx[p].epoch) /\ Goes(p, "cordoned")
                ELSE Stops(p) /\ UNCHANGED <<closed, mark>>
             /\ UNCHANGED <<Notice, pods, alive, Past>>

\* It may have been given back meanwhile: then what was just closed is opened.
Cordoned(p) == /\ pc[p] = "cordoned"
               /\ phase' = IF phase = "NOTICED" /\ (NOTICECAS => epoch = ctx[p].epoch) THEN "CORDONED" ELSE phase
               /\ IF phase \in {"OPENING", "CLOSED"} THEN Goes(p, "readundo") /\ ctx' = ctx ELSE Stops(p)
               /\ UNCHANGED <<kind, epoch, World, Past>>

ReadOpen(p) == /\ pc[p] \in {"readopen", "readundo"} /\ Reads(p) /\ Goes(p, IF pc[p] = "readopen" THEN "uncordon" ELSE "undo")
               /\ UNCHANGED <<Notice, World, Past>>
Uncordon(p) == /\ pc[p] \in {"uncordon", "undo"}
               /\ IF ctx[p].mark = 0 \/ ~IsOwn(p) THEN UNCHANGED <<closed, mark>> /\ (IF pc[p] = "undo" THEN Stops(p) ELSE Goes(p, "close") /\ ctx' = ctx)
                  ELSE IF ctx[p].fresh THEN Changes(p, FALSE, 0) /\ Goes(p, IF pc[p] = "undo" THEN "idle" ELSE "close")
                  ELSE Stops(p) /\ UNCHANGED <<closed, mark>>
               /\ opened' = IF STORED THEN opened ELSE opened \cup {ctx[p].epoch}
               /\ UNCHANGED <<Notice, pods, alive, unsafe, killed>>

\* ---- the phases
Fits(p, x) == (PHASECAS => phase = x) /\ (NOTICECAS => epoch = ctx[p].epoch)
Enters(p, x) == phase' = x /\ UNCHANGED <<kind, epoch, World>>

Evict(p) == pc[p] = "evict" /\ pods' = FALSE /\ Stops(p) /\ UNCHANGED <<Notice, closed, mark, alive, Past>>
Check(p) == /\ pc[p] = "check" /\ (IF closed /\ (MARKED => mark = ctx[p].epoch) /\ ~pods THEN Goes(p, "drained") /\ ctx' = ctx ELSE Stops(p))
            /\ UNCHANGED <<Notice, World, Past>>
Drained(p) == pc[p] = "drained" /\ (IF Fits(p, "CORDONED") THEN Enters(p, "DRAINED") ELSE UNCHANGED <<Notice, World>>) /\ Stops(p) /\ UNCHANGED Past
Expire(p)  == pc[p] = "expire" /\ (IF Fits(p, "CORDONED") THEN Enters(p, "EXPIRED") ELSE UNCHANGED <<Notice, World>>) /\ Stops(p) /\ UNCHANGED Past

\* It stays after all: because it is Ready again, cannot be drained, or EC2 has not taken it.
Open(p) == /\ pc[p] = "open"
           /\ IF ~STORED THEN Goes(p, "readopen") /\ UNCHANGED <<Notice, World, Past, ctx>>
              ELSE IF Fits(p, ctx[p].phase)
              THEN Enters(p, "OPENING") /\ opened' = opened \cup {epoch} /\ Goes(p, "readopen") /\ UNCHANGED <<ctx, unsafe, killed>>
              ELSE UNCHANGED <<Notice, World, Past>> /\ IF phase = "OPENING" THEN Goes(p, "readopen") /\ ctx' = [ctx EXCEPT ![p].epoch = epoch, ![p].kind = kind]
                                                                            ELSE Stops(p)

Close(p) == /\ pc[p] = "close" /\ Stops(p) /\ UNCHANGED Past
            /\ IF phase = (IF STORED THEN "OPENING" ELSE ctx[p].phase) /\ kind = ctx[p].kind /\ (NOTICECAS => epoch = ctx[p].epoch) THEN Enters(p, "CLOSED") ELSE UNCHANGED <<Notice, World>>

\* A hint of which nothing comes, or a node that is Ready again, while another process is about to close it.
CloseWaiting == phase = "NOTICED" /\ kind = "hint" /\ phase' = "CLOSED" /\ UNCHANGED <<kind, epoch, World, Past, pc, ctx>>
CloseGone == phase \in {"NOTICED", "DRAINED", "EXPIRED", "OPENING"} /\ ~alive /\ phase' = "CLOSED" /\ UNCHANGED <<kind, epoch, World, Past, pc, ctx>>

\* Not fenced, and as late as one likes.
Kill(p) == /\ pc[p] = "kill" /\ Stops(p)
           /\ unsafe' = (unsafe \/ (alive /\ kind = "hint" /\ (pods \/ ~closed)))
           /\ killed' = killed \cup {ctx[p].epoch} /\ alive' = FALSE /\ pods' = FALSE /\ UNCHANGED <<Notice, closed, mark, opened>>

\* ---- the sweeper: a cordon of spot on a machine that no notice speaks of
Sweep(p) == /\ SWEEPS /\ pc[p] = "idle" /\ alive /\ mark # 0 /\ IsOver /\ Goes(p, IF NODEFIRST THEN "sweepnode" ELSE "sweepnotice")
            /\ UNCHANGED <<Notice, World, Past, ctx>>
SweepNode(p) == /\ pc[p] = "sweepnode" /\ Reads(p) /\ Goes(p, IF NODEFIRST THEN "sweepnotice" ELSE "sweepopen") /\ UNCHANGED <<Notice, World, Past>>
SweepNotice(p) == /\ pc[p] = "sweepnotice" /\ (IF IsOver THEN Goes(p, IF NODEFIRST THEN "sweepopen" ELSE "sweepnode") /\ ctx' = ctx ELSE Stops(p))
                  /\ UNCHANGED <<Notice, World, Past>>
SweepOpen(p) == /\ pc[p] = "sweepopen"
                /\ IF ctx[p].fresh /\ ctx[p].mark # 0 THEN Changes(p, FALSE, 0) /\ Goes(p, "idle") ELSE Stops(p) /\ UNCHANGED <<closed, mark>>
                /\ UNCHANGED <<Notice, pods, alive, Past>>

Steps(p) == \/ Look(p) \/ Choose(p) \/ ReadCordon(p) \/ Verify(p) \/ Cordon(p) \/ Cordoned(p) \/ ReadOpen(p) \/ Uncordon(p) \/ Evict(p) \/ Check(p) \/ Drained(p)
            \/ Expire(p) \/ Open(p) \/ Close(p) \/ Kill(p) \/ Sweep(p) \/ SweepNode(p) \/ SweepNotice(p) \/ SweepOpen(p)

Lives == (\E p \in Procs : Steps(p)) \/ Tell("hint") \/ Tell("interruption") \/ Schedule \/ Reclaim \/ CloseWaiting \/ CloseGone
Next  == (Lives /\ deaths' = deaths) \/ \E p \in Procs : Die(p)
Spec == Init /\ [][Next]_vars

\* A process that can go on does.
LiveSpec == Spec /\ \A p \in Procs : WF_vars(Steps(p) /\ deaths' = deaths)

----------------------------------------------------------------------------
\* What we terminate is closed and empty, unless EC2 takes it anyway.
SafeTerminate == ~unsafe
\* Of one notice, a machine is opened or terminated, never both.
StaysOrGoes == opened \cap killed = {}
\* A cordon of spot on a live machine that no notice speaks of does not stay.
NoLeakedCordon == (alive /\ mark # 0 /\ phase = "CLOSED") ~> (~alive \/ mark = 0 \/ phase # "CLOSED")
============================================================================
