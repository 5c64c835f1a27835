package rows

import (
	"encoding/binary"
	"encoding/hex"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
)

// The table of keys. Numbers are big-endian; a text inside a key has its length
// in two bytes before it; id is a job's id as 16 bytes.
//
//	!f                             format version and store id
//	!n                             last submit number; bytes stored under a, v, r and their
//	                               pieces, and about those of the other rows and index
//	                               entries of jobs; how many jobs have not ended
//	!e                             number of the first event that is kept
//	!a                             by how much the clock was set while the store was open;
//	                               the times of the indices k and x are without that
//	!c class(4)                    a class of what has ended under one retention rule as it was
//	!k hash(2)                     since when the ledgers of deleted schedules are whole whose
//	                               names have this hash
//	!x                             the youngest id that may have been forgotten, by its time
//	j id                           a job: what never changes, with a short request
//	l id                           its life, with a short value once it has ended
//	o id                           how its last attempt ended, while it waits for another
//	a id                           its request, as the caller wrote it, and signature
//	v id                           what its procedure returned
//	u no(8)                        ids of jobs that have not ended, submitted one after the
//	                               other, the first of which had this number
//	r id attempt(4) first(8)       a chunk of its records
//	i KIND value time(8) no(8)     index: id of a job, by when it was submitted
//	i e time(8) no(8)              index: jobs that ended in one commit, by when the first did
//	i E class(4) time(8) no(8)     likewise those of a class; i e has those of none
//	i k time(8) hash(32)           index: an idempotency key, by when it is over
//	i c time(8) id                 index: an operator's request, by when it was done
//	i b time(8) no(8)              index: a batch, by when it was submitted
//	i f time(8) ...                index: an entry of a ledger, by its first time; the rest is of its key
//	i d time(8) no(8)              index: a batch that has ended, by when it did
//	i D class(4) time(8) no(8)     likewise one of a class; i d has those of none
//	i x time(8) no(8)              index: ids of jobs that were pruned at that time
//	q name                         a queue
//	m name                         a queue that has been cancelled and is not yet gone
//	h name                         a host
//	n name                         how many calls of this store the journal of its agent has taken: as was
//	                               said when its session began, and by ends since
//	d kind name                    a document
//	s name                         where a schedule is in its times; what was put is a document
//	f name time(8) kind            an entry of its ledger, by its first time; of a run that
//	                               somebody asked for with the id of the batch, of ends with that of the
//	                               batch that ended last
//	e no(8)                        events of the feed, the last of which has this number
//	k hash(32)                     an idempotency key: the job it stands for
//	c id                           an operator's request that was done
//	t id                           tombstone of a job that was pruned
//	x id                           a pruned job some of whose records are yet to be
//	                               deleted
//	b id                           a batch: what never changes
//	b id piece(4)                  names of its hosts
//	y id                           its life
//	g id no(8)                     entries of its log, the first of which has this number
//	z name                         the number of the first batch that marks hosts under a name
//	z name host                    the mark of a host under it
//	+ key piece(4)                 what of a value is beyond its first 64 KiB
const (
	prefixMeta      = '!'
	prefixCall      = 'j'
	prefixLife      = 'l'
	prefixOutcome   = 'o'
	prefixRequest   = 'a'
	prefixValue     = 'v'
	prefixUnended   = 'u'
	prefixRecords   = 'r'
	prefixIndex     = 'i'
	prefixQueue     = 'q'
	prefixMarked    = 'm'
	prefixHost      = 'h'
	prefixTaken     = 'n'
	prefixDocument  = 'd'
	prefixSchedule  = 's'
	prefixLedger    = 'f'
	prefixEvent     = 'e'
	prefixOnce      = 'k'
	prefixDone      = 'c'
	prefixTomb      = 't'
	prefixRest      = 'x'
	prefixBatch     = 'b'
	prefixBatchLife = 'y'
	prefixBatchLog  = 'g'
	prefixDrift     = 'z'
	prefixPiece     = '+'
)

// The kinds of index.
const (
	byEnded     = 'e'
	byHost      = 'h'
	byProcedure = 'p'
	byQueue     = 'q'
	byLabel     = 'l'
	byState     = 't' // jobs that have ended
	byOver      = 'k' // idempotency keys
	byDone      = 'c' // operators' requests
	byPruned    = 'x' // tombstones
	byBatch     = 'b' // batches
	byLedger    = 'f' // entries of ledgers
	byBatchEnd  = 'd' // batches that have ended, by when they did

	byClassEnded    = 'E' // as byEnded, of each class
	byClassBatchEnd = 'D' // as byBatchEnd, of each class
)

var (
	keyFormat = []byte{prefixMeta, 'f'}
	keyNumber = []byte{prefixMeta, 'n'}

	keyFirstEvent = []byte{prefixMeta, 'e'}
	keyAhead      = []byte{prefixMeta, 'a'}
	keyForgotten  = []byte{prefixMeta, 'x'}
	keyClass      = []byte{prefixMeta, 'c'} // with the number of a class
	keyKeptFrom   = []byte{prefixMeta, 'k'} // with the hash of a name
)

// id is a job's id as its key has it.
type id [16]byte

// made is when an id was made, in milliseconds, as it says itself.
func (i id) made() uint64 { return binary.BigEndian.Uint64(i[:8]) >> 16 }

// parseID returns the key form of an id; false for what no job can have.
func parseID(text string) (id, bool) {
	var out id
	if harp.CheckJobID(text) != nil {
		return out, false
	}
	digits := make([]byte, 0, 2*len(out))
	for i := range len(text) {
		if text[i] != '-' {
			digits = append(digits, text[i])
		}
	}
	_, err := hex.Decode(out[:], digits)
	return out, err == nil
}

func (i id) String() string {
	var b [36]byte
	hex.Encode(b[0:8], i[0:4])
	hex.Encode(b[9:13], i[4:6])
	hex.Encode(b[14:18], i[6:8])
	hex.Encode(b[19:23], i[8:10])
	hex.Encode(b[24:36], i[10:16])
	b[8], b[13], b[18], b[23] = '-', '-', '-', '-'
	return string(b[:])
}

func (i id) key(prefix byte) []byte { return append([]byte{prefix}, i[:]...) }

// attemptKey is what the keys of an attempt's records begin with.
func (i id) attemptKey(attempt int) []byte {
	return binary.BigEndian.AppendUint32(i.key(prefixRecords), uint32(attempt))
}

func (i id) recordsKey(attempt int, first uint64) []byte {
	return binary.BigEndian.AppendUint64(i.attemptKey(attempt), first)
}

func eventKey(no uint64) []byte {
	return binary.BigEndian.AppendUint64([]byte{prefixEvent}, no)
}

func nameKey(prefix byte, name string) []byte { return append([]byte{prefix}, name...) }

func documentKey(kind, name string) []byte {
	return append(appendText([]byte{prefixDocument}, kind), name...)
}

func pieceKey(key []byte, piece int) []byte {
	return binary.BigEndian.AppendUint32(appendText([]byte{prefixPiece}, string(key)), uint32(piece))
}

// indexKey is what the keys of one index begin with, with room for a place and for what an entry says: a kind
// and the value looked for.
func indexKey(kind byte, value ...string) []byte {
	size := 2 + len(place{}) + crcSize + len(id{})
	for _, v := range value {
		size += 2 + len(v)
	}
	k := append(make([]byte, 0, size), prefixIndex, kind)
	for _, v := range value {
		k = appendText(k, v)
	}
	return k
}

func appendText(k []byte, text string) []byte {
	return append(binary.BigEndian.AppendUint16(k, uint16(len(text))), text...)
}

// place is where a job stands in an index: its time and its submit number.
type place [16]byte

func placeOf(nanos int64, no uint64) place {
	var p place
	binary.BigEndian.PutUint64(p[:8], uint64(nanos)^1<<63) // so that bytes order as the numbers do
	binary.BigEndian.PutUint64(p[8:], no)
	return p
}

// before is the place next below; false if there is none.
func (p place) before() (place, bool) {
	for i := len(p) - 1; i >= 0; i-- {
		p[i]--
		if p[i] != 0xff {
			return p, true
		}
	}
	return p, false
}

// lastPlace is the highest place there is.
var lastPlace = place{255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255}

// entries returns the keys of the index entries that a job has from its submission on.
func entries(j *store.Job) [][]byte {
	at := submittedAt(j)
	keys := [][]byte{
		indexKey(byHost, j.Host),
		indexKey(byProcedure, j.Procedure),
	}
	if j.Queue != nil {
		keys = append(keys, indexKey(byQueue, string(j.Queue)))
	}
	for k, v := range j.Labels {
		keys = append(keys, indexKey(byLabel, k, v))
	}
	for i := range keys {
		keys[i] = append(keys[i], at[:]...)
	}
	return keys
}

// submittedAt is the place of a job in all indexes that it is in.
func submittedAt(j *store.Job) place { return placeOf(nanos(j.SubmitTime), j.No) }

// endedKey is the key of the index entry by state, of a job that has ended.
func endedKey(j *store.Job) []byte {
	at := submittedAt(j)
	return append(indexKey(byState, string(j.State)), at[:]...)
}

// chunkFirst is the attempt's number of the first record in a chunk.
func chunkFirst(key []byte) uint64 { return binary.BigEndian.Uint64(key[len(key)-8:]) }
