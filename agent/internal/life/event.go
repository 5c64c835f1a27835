package life

import "github.com/harpcaller/harp/internal/wire"

// Kind names what can happen to an attempt.
type Kind uint8

// The events, with the fields that count.
const (
	_ Kind = iota

	Start  // it begins: At
	Refuse // it is not begun after all

	Offer    // the function offers Record: At, Up, Busy
	OfferAt  // the command's supervisor offers Record, which has number Next, of Size bytes of output: At, Busy
	SkipTo   // the command's records before Next are lost to the agent, and kept elsewhere
	Deafen   // what the command still prints is not wanted; Size bytes of it may be lost already
	DropTail // the command's supervisor has dropped Size bytes behind its records before Next

	Stop      // a limit or cancel asks for it to stop: Stopping
	StopLate  // that is not journalled yet, which takes too long
	Survivors // the processes in Left outlive KILL
	Return    // the function has returned, with End; nil: it is gone, and nobody knows how: At

	Hand     // what could not be journalled may be now
	Taken    // the journal has taken the last Write; Bare: without the value
	NotTaken // it has not: Err; Full: for want of room
	Synced   // the journal has everything on disk up to To
	Unsynced // what was handed over and not synced is not in the journal: Err
	Reopened // the journal is another one, and has it as far as To; Lost: not at all

	Attach  // Peer asks to be told, from record Next on, with a window of Size bytes; 0: as before
	Detach  // Peer asks no more
	Ack     // Peer has everything before record Next; Over: and the end. Size: its window; 0: as before
	Abandon // nobody will ask for it any more
	Settle  // its end was taken, or nobody wants it
	Wait    // Peer waits for room to be sent the end

	Send    // Peer can be sent something: At
	Read    // what the journal has for Peer, of what Fetch wanted: Records from Next on, or Err; Damaged: it is lost
	ReadEnd // END, which Fetch wanted: End, or Err; Damaged: it is lost
)

// Event is one thing that happened. Which fields count depends on Kind.
type Event struct {
	Kind     Kind
	At       int64 // when, in nanoseconds since 1970
	Record   wire.Record
	Records  []wire.Record
	Next     int64
	Size     int64
	Stopping *wire.Stopping
	Left     []int64
	End      *wire.End
	To       Progress
	Peer     *Peer
	Fetch    Fetch
	Err      error

	Up      bool // Offer: the attempt's dispatcher has a session
	Busy    bool // Offer, OfferAt: the disk is far behind
	Full    bool
	Bare    bool
	Lost    bool
	Over    bool
	Damaged bool
}

// Effect is what is to be done about an event.
type Effect struct {
	Put   Put            // Offer, OfferAt, and what follows from them: what became of the record
	Write Write          // hand this to the journal, and say Taken or NotTaken
	Ack   int64          // tell the journal that the records before it are kept elsewhere
	Retry bool           // there may be room now in the journal for what it had none for
	Run   bool           // run the procedure
	Stop  *wire.Stopping // end the procedure's context
	Late  bool           // say StopLate after a while
	Wake  bool           // wake the peer, who may be sent something
	Room  bool           // wake who waits for room
	Leave bool           // the attempt is not to be held any more
	Drop  bool           // tell the journal that nobody will ask for it any more
	Away  bool           // Attach: there are no such records
	Wrong bool           // Ack: of what was not sent

	Message Message // Send, Read, ReadEnd: what is to be sent
	Fetch   Fetch   // read this in the journal, and say Read or ReadEnd
	Err     error   // why nothing can be sent now; to be tried again
	Lack    Lack    // records that are told as dropped, or not at all, for people
}

// Put is what became of a record.
type Put uint8

// What can become of one.
const (
	_       Put = iota
	Kept        // it has its number, or needs none
	Later       // there is no room now
	Dropped     // there is no room, and nobody who could make some
	Over        // the function has returned
	Gap         // it is ahead of others
)

// WriteKind is what is handed to the journal.
type WriteKind uint8

// They are handed over in this order. A journal that has no room for records has some for
// the end, which says how much is missing.
const (
	_ WriteKind = iota
	WriteRecords
	WriteStop
	WriteEnd
	writeNone
)

// Write is something for the journal.
type Write struct {
	Kind     WriteKind
	After    int64 // records before it are in the journal, or were acknowledged
	First    int64
	Records  []wire.Record // until the next event
	Stopping *wire.Stopping
	End      *wire.End
	Lacks    *Lacks
	Whole    bool     // END goes with its value, or not at all
	To       Progress // how much the journal has when it has taken this
}

// Progress is how much of an attempt a journal has.
type Progress struct {
	Next int64 // the first record that it has not
	Stop bool
	End  bool
}

// Message is what is sent to a peer: one of these.
type Message struct {
	Stopping *wire.Stopping
	Records  *wire.Records
	End      *wire.End
}

// Fetch is what has to be read in the journal before it can be sent: END, or records of at most so
// many bytes. The zero Fetch is nothing.
type Fetch struct {
	End         bool
	From, Until int64
	Most        int
}

// Lack says which records the journal has not, and why.
type Lack struct {
	Why     LackKind
	First   int64
	Missing int64
}

// LackKind is why records are not in the journal.
type LackKind uint8

// The reasons.
const (
	_           LackKind = iota
	Damaged              // one cannot be read
	Missing              // they are not there, and others have the numbers behind them
	NoRoom               // the journal had no room for them
	Unwritten            // the last ones were not written before the process ended
	EndLost              // END cannot be read
	JournalLost          // the journal has lost the attempt
)

// Lacks are the last records of an attempt, which the journal had no room for.
type Lacks struct {
	First int64 `msgpack:"first"`
	Next  int64 `msgpack:"next"`
	Bytes int64 `msgpack:"bytes"` // of their values, and dropped before them
}

// dropped returns how many bytes a record of them is said to have had: all of them
// together as many as they had. Which had how many is not journalled.
func (l *Lacks) dropped(n int64) int64 {
	i, all := n-l.First, l.Next-l.First
	return l.Bytes*(i+1)/all - l.Bytes*i/all
}
