package rows

import (
	"encoding/binary"
	"errors"
	"iter"
	"maps"
	"math"
	"slices"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
)

// What has ended under one rule as it was then is a class, which has indices of its own by when it ended: so what
// is kept long is never walked over. What no rule fits is of class 0, which has no row.

// RetentionClasses implements store.Upkeep.
func (s *Store) RetentionClasses() []store.RetentionClass {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []store.RetentionClass
	for _, no := range s.classNumbers() {
		out = append(out, *s.classes[no])
	}
	return out
}

// classNumbers are the numbers of all classes with a row, in their order.
func (s *Store) classNumbers() []uint32 { return slices.Sorted(maps.Keys(s.classes)) }

func classKey(no uint32) []byte {
	return binary.BigEndian.AppendUint32(slices.Clone(keyClass), no)
}

// endedPrefix is what the keys of an index of a class begin with, of byEnded or byBatchEnd.
func endedPrefix(kind byte, class uint32) []byte {
	if class == 0 {
		return indexKey(kind)
	}
	return binary.BigEndian.AppendUint32(indexKey(classed[kind]), class)
}

// classed are the kinds of the indices of what is of a class that has a row.
var classed = map[byte]byte{byEnded: byClassEnded, byBatchEnd: byClassBatchEnd}

// noteClass notes what an operation has made of a class, which is written with all of its group.
func (t *tx) noteClass(c *store.RetentionClass) {
	t.wrote = true
	if t.classes == nil {
		t.classes = map[uint32]*store.RetentionClass{}
	}
	if _, is := t.classes[c.No]; !is {
		t.size += len(classKey(c.No)) + 2*harp.MaxRetentionName + WriteCost
	}
	as := *c
	t.classes[c.No] = &as
}

// dropClass notes that a class is gone.
func (t *tx) dropClass(no uint32) {
	t.noteClass(&store.RetentionClass{No: no})
	t.classes[no] = nil
}

// classRows are the rows of the classes that the group has changed.
func (t *tx) classRows() (out []Write) {
	for no, c := range t.classes {
		key := classKey(no)
		var value []byte
		if c != nil {
			value, _ = split(key, encode(c))
		}
		out = append(out, Write{key, value})
	}
	return out
}

// classOf is the class of what ends now under a rule, made if there is none of it as that is. What is counted there has been read before, as this
// writes.
func (s *Store) classOf(t *tx, rule *harp.RetentionRule) *store.RetentionClass {
	for _, c := range s.classes {
		if c.IsOf(rule) {
			return c
		}
	}
	s.lastClass++
	c := &store.RetentionClass{No: s.lastClass, Rule: rule.Name, Keep: rule.Keep, MaxBytes: rule.MaxBytes}
	s.classes[c.No] = c
	t.noteClass(c)
	return c
}

// classify puts a job that an event has ended into its class, and counts one that had ended before as it is now. A
// member has none: its batch counts it. Errors: the engine's.
func (s *Store) classify(t *tx, i id, before, j *store.Job, short []byte) error {
	ends := !before.State.Ended()
	switch b := s.batchOf(j); {
	case b != nil && ends:
		size, err := t.sizeOf(i, j, short)
		b.life.Counted += size
		return err
	case j.Batch != "":
		return s.countLate(t, i, before, j, short)
	case ends:
		return s.enterClass(t, i, j, short)
	}
	return s.countInClass(t, i, j, short)
}

// enterClass puts a job that ends into its class. Errors: the engine's, with nothing written.
func (s *Store) enterClass(t *tx, i id, j *store.Job, short []byte) error {
	rule, fits := store.FindRule(s.rules, store.Ending{State: j.State, Procedure: j.Procedure, Schedule: j.Schedule, Labels: j.Labels})
	if !fits {
		return nil
	}
	var size int64
	if rule.MaxBytes > 0 {
		var err error
		if size, err = t.countOf(i, j, short); err != nil {
			return err
		}
	}
	c := s.classOf(t, &rule)
	j.Class = c.No
	t.countJob(c, j, size)
	return nil
}

// countLate counts in its batch, and in the class of that, what has come late of a member. What is damaged counts
// nothing. Errors: the engine's.
func (s *Store) countLate(t *tx, i id, before, j *store.Job, short []byte) error {
	size, err := t.sizeOf(i, j, short)
	if err != nil {
		return err
	}
	had, err := t.sizeOf(i, before, nil)
	if err != nil {
		return err
	}
	if short != nil && isValued(&before.Life) {
		had += int64(len(short))
	}
	if size == had {
		return nil
	}
	if b := s.batchOf(j); b != nil {
		b.life.Counted += size - had
		t.noteBatch(b)
		return nil
	}
	of, _ := parseID(j.Batch)
	life, err := t.endedLife(of)
	if errors.Is(err, ErrDamaged) {
		return nil
	}
	if c := s.classes[life.Class]; err == nil && c != nil && c.MaxBytes > 0 {
		life.Counted += size - had
		t.noteBatch(&batch{id: of, life: life.BatchLife, log: life.Log})
		c.Bytes += size - had
		t.noteClass(c)
	}
	return err
}

// endedLife reads the life of a batch that has ended, as this group or the one before may have left it. Errors:
// ErrDamaged, the engine's.
func (t *tx) endedLife(i id) (life batchLifeRow, err error) {
	if c := t.changedBatch(i); c != nil {
		return batchLifeRow{BatchLife: c.life, Log: c.log}, nil
	}
	_, err = read(t, i.key(prefixBatchLife), &life)
	return life, err
}

// countInClass counts what a job of a class stores, as it is now. Errors: the engine's.
func (s *Store) countInClass(t *tx, i id, j *store.Job, short []byte) error {
	c := s.classes[j.Class]
	if c == nil || c.MaxBytes == 0 {
		return nil
	}
	size, err := t.countOf(i, j, short)
	if err != nil {
		return err
	}
	t.countJob(c, j, size)
	return nil
}

// countJob has a job count so much in its class, if that counts.
func (t *tx) countJob(c *store.RetentionClass, j *store.Job, size int64) {
	if c.MaxBytes == 0 {
		return
	}
	c.Bytes += size - j.Counted
	j.Counted = size
	t.noteClass(c)
}

// countOf is what a job counts in its class. Errors: the engine's.
func (t *tx) countOf(i id, j *store.Job, short []byte) (int64, error) {
	size, err := t.sizeOf(i, j, short)
	if err != nil {
		return 0, err
	}
	request, err := t.requestSize(i)
	return size + request, err
}

// leaveClass takes a job out of its class that cannot be deleted: it is of none from then on. Counted there it would have others
// deleted in its place. Errors: the engine's.
func (p *pruning) leaveClass(e ended) error {
	size, err := p.countedOf(e.id)
	if err != nil {
		return err
	}
	if c := p.s.classes[p.class]; c != nil {
		p.uncount(c.No, min(size, c.Bytes))
	}
	p.addEnded(ended{at: e.at, no: noOf(e.id), id: e.id}) // its own may not be known
	return nil
}

// countedOf is what a job that cannot be read counts in its class; about, if that was lost with its life, or it is a member, of which
// its batch counts that. Errors: the engine's.
func (t *tx) countedOf(i id) (int64, error) {
	var life lifeRow
	switch found, err := read(t, i.key(prefixLife), &life); {
	case err != nil && !errors.Is(err, ErrDamaged):
		return 0, err
	case err == nil && found && life.State.Ended() && !i.isMember():
		return life.Counted, nil
	}
	var call callRow
	if _, err := read(t, i.key(prefixCall), &call); err != nil && !errors.Is(err, ErrDamaged) {
		return 0, err
	}
	size := footprint(call.toJob(i, store.Life{State: harp.StateFailed}))
	for entry, err := range t.snap.Keys(i.key(prefixRecords)) {
		if err != nil {
			return 0, err
		}
		size += int64(entry.Size)
	}
	value, err := t.storedSize(i.key(prefixValue))
	if err != nil {
		return 0, err
	}
	request, err := t.requestSize(i)
	return size + value + request, err
}

// classifyBatch puts a batch that ends into its class. Errors: the engine's, with nothing written.
func (s *Store) classifyBatch(t *tx, b *batch) error {
	of := &b.row.Member
	rule, fits := store.FindRule(s.rules, store.Ending{State: harp.State(b.life.State), Procedure: of.Procedure, Schedule: of.Schedule, Labels: of.Labels})
	if !fits {
		return nil
	}
	var request int64
	if rule.MaxBytes > 0 {
		var err error
		if request, err = t.storedSize(b.id.key(prefixRequest)); err != nil {
			return err
		}
	}
	c := s.classOf(t, &rule)
	if b.life.Class = c.No; c.MaxBytes == 0 {
		return nil
	}
	b.life.Counted += request
	c.Bytes += b.life.Counted
	t.noteClass(c)
	return nil
}

// sizeOf is about how much a job stores that has ended, with a short value, but for its request.
func (t *tx) sizeOf(i id, j *store.Job, short []byte) (int64, error) {
	size := footprint(j) + int64(j.Stored) + int64(len(short)) //nolint:gosec // bounded
	if short != nil || !isValued(&j.Life) {
		return size, nil
	}
	value, err := t.storedSize(i.key(prefixValue))
	return size + value, err
}

// requestSize is how long the request of a job is, about; nothing where it cannot be read.
func (t *tx) requestSize(i id) (int64, error) {
	var call callRow
	_, err := read(t, i.key(prefixCall), &call)
	switch {
	case errors.Is(err, ErrDamaged):
		return 0, nil
	case err != nil:
		return 0, err
	case call.Request != nil:
		return int64(requestSize(call.Request)), nil
	}
	return t.storedSize(i.key(prefixRequest))
}

// storedSize is about how much is stored under a key and in the pieces that belong to it.
func (t *tx) storedSize(key []byte) (int64, error) {
	value, err := t.getRaw(key)
	if err != nil || len(value) <= crcSize {
		return 0, err
	}
	pieces, _ := binary.Uvarint(value[crcSize:])
	return int64(len(value)) + int64(min(pieces, math.MaxUint16))*pieceSize, nil
}

// isInUse reports whether a rule is as that of a class was: what ends may be of it.
func (s *Store) isInUse(c *store.RetentionClass) bool {
	return slices.ContainsFunc(s.rules, func(r harp.RetentionRule) bool { return c.IsOf(&r) })
}

// noteRule heeds the document of a rule as it is from now on; nil: there is none any more. It has been checked.
func (s *Store) noteRule(name string, content []byte) {
	s.rules = slices.DeleteFunc(slices.Clone(s.rules), func(r harp.RetentionRule) bool { return r.Name == name })
	doc, err := store.ReadRetention(content)
	if content == nil || err != nil {
		return
	}
	doc.Rule.Name = name
	at, _ := slices.BinarySearchFunc(s.rules, doc.Rule, harp.RetentionRule.Compare)
	s.rules = slices.Insert(s.rules, at, doc.Rule)
}

// noteDocument heeds a document that is of a rule.
func (s *Store) noteDocument(kind, name string, content []byte) {
	if kind == store.RetentionKind {
		s.noteRule(name, content)
	}
}

// checkRule refuses the document of a rule that cannot be read. Errors: *harp.FieldError.
func checkRule(content []byte) error {
	if _, err := store.ReadRetention(content); err != nil {
		return &harp.FieldError{Field: store.RetentionKind, Message: "is the document of no rule"}
	}
	return nil
}

// loadRetention reads the rules and the classes. A rule that cannot be read fits nothing. A class that cannot be read, or is
// missing though something is in it, is kept: nobody knows how long it was to be.
func (s *Store) loadRetention(snap Snapshot) error {
	of := documentKey(store.RetentionKind, "")
	for item, err := range snap.Scan(of, nil, false) {
		if err != nil {
			return err
		}
		name := string(item.Key[len(of):])
		content, err := joinItem(snap, item)
		if err == nil {
			err = checkRule(content)
		}
		if err != nil {
			s.log.Error("retention rule cannot be read: it fits nothing that ends", "rule", name, "err", err)
			continue
		}
		s.noteRule(name, content)
	}
	for item, err := range snap.Scan(keyClass, nil, false) {
		if err != nil {
			return err
		}
		c := &store.RetentionClass{}
		no := binary.BigEndian.Uint32(item.Key[len(keyClass):])
		if err := readItem(snap, item, c); err != nil {
			s.loseClass(no, err)
			continue
		}
		c.No = no
		s.addClass(c)
	}
	for _, kind := range []byte{byClassEnded, byClassBatchEnd} {
		for no, err := range classesIn(snap, kind) {
			if err != nil {
				return err
			}
			if s.classes[no] == nil {
				s.loseClass(no, ErrDamaged)
			}
		}
	}
	return nil
}

func (s *Store) addClass(c *store.RetentionClass) {
	s.classes[c.No] = c
	s.lastClass = max(s.lastClass, c.No)
}

func (s *Store) loseClass(no uint32, err error) {
	s.log.Error("how long some jobs are to be kept cannot be read: they are kept for ever", "class", no, "err", err)
	s.addClass(&store.RetentionClass{No: no, Keep: harp.NoLimit})
}

// classesIn yields the numbers of the classes of which there is something in an index.
func classesIn(snap Snapshot, kind byte) iter.Seq2[uint32, error] {
	return func(yield func(uint32, error) bool) {
		prefix := indexKey(kind)
		var from []byte
		for {
			var no uint32
			found := false
			for item, err := range snap.Scan(prefix, from, false) {
				if err != nil {
					yield(0, err)
					return
				}
				no, found = binary.BigEndian.Uint32(item.Key[len(prefix):]), true
				break
			}
			if !found || !yield(no, nil) || no == math.MaxUint32 {
				return
			}
			from = binary.BigEndian.AppendUint32(slices.Clone(prefix), no+1)
		}
	}
}
