package journal

import "time"

// group is what is written and synced together.
type group struct {
	commit *Commit
	due    bool // to be written now
	timer  *time.Timer

	patient bool             // nothing of it but what lasts, which is not written at once after it was lost
	buf     []byte           // entries
	spool   map[Key]*extent  // records that are not in buf yet; this and the maps below are nil until something is in them
	spooled int              // bytes of records and ENDs, in buf or not
	placed  []placed         // extents that are in buf
	before  map[Key]*attempt // what was known before; nil: nothing
	tombs   map[Key]int64    // that are new, and when they were made
	reduced map[Key]reduction
	taken   []string // stores of which there is a call, one each
}

// placed is an extent in a group's buffer.
type placed struct {
	x     *extent
	start int
}

func newGroup() *group {
	return &group{
		commit: &Commit{done: make(chan struct{})},
	}
}

// add appends an entry, after the records of the same attempt.
func (g *group) add(e *entry) {
	g.flush(e.key)
	g.buf = appendEntry(g.buf, e)
}

// addEnd appends an END.
func (g *group) addEnd(e *entry, x *extent) {
	g.flush(e.key)
	g.place(e, x)
}

func (g *group) place(e *entry, x *extent) {
	start := len(g.buf)
	g.buf = appendEntry(g.buf, e)
	g.placed = append(g.placed, placed{x, start})
}

// flush appends the records of an attempt.
func (g *group) flush(k Key) {
	if x := g.spool[k]; x != nil {
		delete(g.spool, k)
		g.place(&entry{kind: kindRecords, key: k, count: x.first, records: x.pending}, x)
	}
}

func (g *group) flushAll() {
	for k := range g.spool {
		g.flush(k)
	}
}

// locate tells the extents where they are: the group was written at the end of at.
func (g *group) locate(at segment) {
	for _, p := range g.placed {
		p.x.segment, p.x.offset = at.number, at.size+int64(p.start)
		p.x.size, p.x.pending = entryLen(g.buf[p.start:]), nil
	}
}
