package journal

import (
	"errors"
	"maps"
	"math/rand/v2"
	"reflect"
	"strings"
	"syscall"
	"testing"
)

// harmed is a journal with a flipped bit, a missing end or a missing file.
func harmed(whole *Memory, r *rand.Rand) *Memory {
	names, _ := whole.List()
	mem := NewMemory()
	victim, how := names[r.IntN(len(names))], r.IntN(5)
	for _, name := range names {
		data := whole.Bytes(name)
		switch {
		case name != victim:
		case how == 0 && len(names) > 1:
			continue
		case how == 1:
			data = data[:r.IntN(len(data))]
		default:
			data[r.IntN(len(data))] ^= byte(1 + r.IntN(255))
		}
		mem.Put(name, data)
	}
	return mem
}

// everRecorded has every record of the script, by attempt and number.
func everRecorded() map[Key]map[int64]string {
	all := map[Key]map[int64]string{}
	now := model{}
	for _, o := range script() {
		o.model(now)
		for k, r := range now {
			if all[k] == nil {
				all[k] = map[int64]string{}
			}
			maps.Copy(all[k], r.Records)
		}
	}
	return all
}

// TestSalvage: whatever is damaged, Check finds what keeps the journal from opening, and
// nothing else; what is salvaged is a journal with another id, which has nothing that was
// not there, and starts nothing that may have been started.
func TestSalvage(t *testing.T) {
	records := everRecorded()
	damaged, kept := 0, 0
	for _, opts := range []Options{{}, small} {
		whole, _, _ := played(t, opts)
		for seed := range uint64(500) {
			mem := harmed(whole, rand.New(rand.NewPCG(seed, 0)))
			found, err := Check(mem)
			must(t, err)
			to := NewMemory()
			did, err := Salvage(mem, to)
			must(t, err)
			j, err := Open(mem, opts)
			if corrupt := errors.Is(err, ErrCorrupt); corrupt != (len(found.Damage) > 0) || len(found.Damage) != len(did.Damage) {
				t.Fatalf("seed %d: opening it says %v, Check %v, Salvage %v", seed, err, found.Damage, did.Damage)
			}
			if err == nil {
				must(t, j.Close())
			} else {
				damaged++
			}
			kept += len(did.Held)
			salvaged(t, to, did, records)
			if t.Failed() {
				t.Fatalf("seed %d", seed)
			}
		}
	}
	if damaged < 300 || kept < 1000 {
		t.Errorf("%d were damaged, and %d attempts were kept: too few to show anything", damaged, kept)
	}
}

// salvaged checks what was salvaged.
func salvaged(t *testing.T, mem *Memory, did Report, records map[Key]map[int64]string) {
	t.Helper()
	j, err := Open(mem, Options{})
	must(t, err)
	defer j.Close()
	if j.ID() == did.ID {
		t.Error("it has the id of the damaged one")
	}
	got, err := look(j, universe)
	must(t, err)
	for _, h := range did.Held {
		if s := j.State(h.Key); s != h.State {
			t.Errorf("%v is %v, reported as %v", h.Key, s, h.State)
		}
	}
	for _, k := range did.Partial {
		if s := j.State(k); s != Forgotten {
			t.Errorf("%v is %v, of which only a part was read", k, s)
		}
	}
	for k, r := range got {
		if r.State == Accepted && len(did.Damage) > 0 {
			t.Errorf("%v can be started", k)
		}
		for n, text := range r.Records {
			if records[k][n] != text {
				t.Errorf("record %d of %v is %q", n, k, text)
			}
		}
	}
	must(t, j.AcceptStart(Key{"then", 1}, Accept{}, now()))
}

// TestSalvageOfASoundJournal keeps all of it.
func TestSalvageOfASoundJournal(t *testing.T) {
	whole, want, _ := played(t, small)
	to := NewMemory()
	did, err := Salvage(whole, to)
	if err != nil || len(did.Damage) > 0 {
		t.Fatal(did.Damage, err)
	}
	j, err := Open(to, small)
	must(t, err)
	defer j.Close()
	got, err := look(j, universe)
	must(t, err)
	h := newHistory()
	h.since = []model{want}
	if err := h.allows(got); err != nil {
		t.Error(err)
	}
	if _, err := Salvage(whole, to); !errors.Is(err, ErrInvalid) {
		t.Errorf("where there is a journal: %v", err)
	}
}

// badBlock is a disk that cannot read one block.
type badBlock struct {
	*Memory
	at int64
}

type badFile struct {
	File
	at int64
}

var errMedium = errors.New("input/output error")

func (b badBlock) Open(name string) (File, error) {
	f, err := b.Memory.Open(name)
	return badFile{f, b.at}, err
}

func (f badFile) ReadAt(p []byte, off int64) (int, error) {
	if off <= f.at && f.at < off+int64(len(p)) {
		return 0, errMedium
	}
	return f.File.ReadAt(p, off)
}

// TestSalvageFromABadBlock: what the disk does not give is missing, and no more.
func TestSalvageFromABadBlock(t *testing.T) {
	mem := NewMemory()
	j, err := Open(mem, Options{})
	must(t, err)
	for i := range 100 {
		must(t, j.AcceptStart(key(i), Accept{Info: make([]byte, 1000)}, now()))
	}
	must(t, j.Close())
	bad := badBlock{mem, 50_000}
	if _, err := Open(bad, Options{}); !errors.Is(err, errMedium) {
		t.Fatalf("opened: %v", err)
	}
	to := NewMemory()
	did, err := Salvage(bad, to)
	if err != nil || len(did.Damage) != 1 || len(did.Held) < 93 || len(did.Held) > 96 {
		t.Errorf("%d attempts, %v, %v", len(did.Held), did.Damage, err)
	}
	salvaged(t, to, did, nil)
}

// TestSalvageOfASegmentThatEndsEarly: what is before the end is kept, and so is what other
// segments have.
func TestSalvageOfASegmentThatEndsEarly(t *testing.T) {
	mem := NewMemory()
	opts := Options{SegmentSize: 10_000}
	j, err := Open(mem, opts)
	must(t, err)
	for i := range 100 {
		must(t, j.AcceptStart(key(i), Accept{Info: make([]byte, 1000)}, now()))
	}
	must(t, j.Close())
	for victim := 1; victim <= 3; victim++ {
		short := NewMemory()
		for n := 1; len(mem.Bytes(segmentName(uint64(n)))) > 0; n++ {
			data := mem.Bytes(segmentName(uint64(n)))
			if n == victim {
				data = data[:len(data)-500]
			}
			short.Put(segmentName(uint64(n)), data)
		}
		to := NewMemory()
		did, err := Salvage(short, to)
		if err != nil || len(did.Damage) == 0 || len(did.Held) != 99 {
			t.Errorf("segment %d is cut: %d attempts, %v, %v", victim, len(did.Held), did.Damage, err)
		}
		salvaged(t, to, did, nil)
	}
}

// TestSalvageThatCannotBeWritten: a disk that does not take all of the new journal makes
// the salvage fail, which else would put a part of it in the place of the damaged one.
func TestSalvageThatCannotBeWritten(t *testing.T) {
	mem := NewMemory()
	j, err := Open(mem, Options{})
	must(t, err)
	must(t, j.AcceptStart(key(0), Accept{}, now()))
	for n := range int64(40) {
		_, err := j.Append(key(0), n, make([]byte, 60_000))
		must(t, err)
	}
	must(t, j.Close())
	whole := FailAt(NewMemory(), 0, nil)
	_, err = Salvage(mem, whole)
	must(t, err)
	if calls := whole.Calls(); calls < 12 || calls > 16 {
		t.Errorf("%d calls for 2.4 MB: they are to be written by the MiB", calls)
	}
	const closing = 2 // the last calls say that it was closed, without which it is as after a kill
	for n := 1; n <= whole.Calls()-closing; n++ {
		if _, err := Salvage(mem, FailAt(NewMemory(), n, syscall.EIO)); !errors.Is(err, syscall.EIO) {
			t.Errorf("call %d of %d fails: %v", n, whole.Calls(), err)
		}
	}
}

// TestCheckChangesNothing: of a torn journal it says how much is torn, and cuts nothing.
func TestCheckChangesNothing(t *testing.T) {
	data, begin, end := lastGroup(t)
	mem := NewMemory()
	mem.Put(segmentName(1), withoutSector(data, begin+1000, begin, 0))
	mem.Put(segmentName(2)+fresh, []byte("half"))
	before := mem.Bytes(segmentName(1))
	found, err := Check(mem)
	must(t, err)
	if found.Damage != nil || found.Torn < 1000 || found.Torn > int64(end-begin) || len(found.Held) != 5 || found.ID == "" {
		t.Errorf("%+v", found)
	}
	if names, _ := mem.List(); len(names) != 2 || string(mem.Bytes(segmentName(1))) != string(before) {
		t.Errorf("%v are there, and of the segment %d of %d bytes", names, len(mem.Bytes(segmentName(1))), len(before))
	}
	if none, err := Check(NewMemory()); err != nil || none.ID != "" || none.Segments != 0 {
		t.Errorf("no journal is %+v, %v", none, err)
	}
}

// TestSalvageStartsNothing: of a damaged journal an attempt that was accepted may have been
// started since, of which nothing is left. It is not held, however whole it looks.
func TestSalvageStartsNothing(t *testing.T) {
	mem := NewMemory()
	j, err := Open(mem, Options{})
	must(t, err)
	must(t, j.Accept(key(1), Accept{}))
	must(t, j.AcceptStart(key(2), Accept{}, now()))
	at := len(mem.Bytes(segmentName(1)))
	must(t, j.Start(key(1), now()))
	must(t, j.AcceptStart(key(3), Accept{}, now()))
	must(t, j.Close())
	data := mem.Bytes(segmentName(1))
	data[at+entryHead] ^= 1
	mem.Put(segmentName(1), data)
	to := NewMemory()
	did, err := Salvage(mem, to)
	if err != nil || len(did.Damage) != 1 || len(did.Held) != 2 || len(did.Partial) != 1 || did.Partial[0] != key(1) {
		t.Errorf("held are %+v, in part %v; damage %v, %v", did.Held, did.Partial, did.Damage, err)
	}
	salvaged(t, to, did, nil)
}

// TestCheckThatCannotRead: what the file system does not answer, once or any more, is an
// error or damage; a journal is never said to be sound of which something was not read,
// and a salvage of it is never taken for whole.
func TestCheckThatCannotRead(t *testing.T) {
	whole, _, _ := played(t, small)
	want, err := Check(whole)
	must(t, err)
	for name, read := range map[string]func(FS) (Report, error){
		"Check":   Check,
		"Salvage": func(fsys FS) (Report, error) { return Salvage(fsys, NewMemory()) },
	} {
		every := FailAt(whole, 0, nil)
		_, err := read(every)
		must(t, err)
		for n := 1; n <= every.Calls(); n++ {
			for _, forever := range []bool{false, true} {
				fails := FailAt(whole, n, syscall.EIO)
				fails.Forever = forever
				got, err := read(fails)
				switch {
				case errors.Is(err, syscall.EIO), len(got.Damage) > 0:
				case err != nil || !reflect.DeepEqual(got, want):
					t.Errorf("%s, call %d, forever %v: %+v, %v", name, n, forever, got, err)
				}
			}
		}
	}
}

// TestMend: of an attempt of which something may be missing, one that did something was
// started, and one whose END is gone has not ended.
func TestMend(t *testing.T) {
	record := []*extent{{first: 0, count: 1}}
	for what, c := range map[string]struct {
		found attempt
		want  State
		next  int64
		left  int
	}{
		"accepted":               {attempt{state: Accepted}, Accepted, 0, 0},
		"a record without START": {attempt{state: Accepted, next: 1, spool: record}, Started, 1, 1},
		"an ACK without records": {attempt{state: Started, acked: 7}, Started, 7, 0},
		"an ACK of all":          {attempt{state: Started, acked: 1, next: 1, spool: record}, Started, 1, 0},
		"ended":                  {attempt{state: Ended, end: &extent{}}, Ended, 0, 0},
		"no END":                 {attempt{state: Ended}, Started, 0, 0},
		"no END, and stopped":    {attempt{state: Ended, stop: &Stop{}}, Stopping, 0, 0},
		"stopping":               {attempt{state: Stopping, stop: &Stop{}}, Stopping, 0, 0},
	} {
		a := c.found
		if a.mend(); a.state != c.want || a.next != c.next || len(a.spool) != c.left {
			t.Errorf("%s: %v, %d records, %d spooled", what, a.state, a.next, len(a.spool))
		}
	}
}

// TestCheckTellsADamagedHeadOnce: the rest of its segment is read by where its neighbours
// are.
func TestCheckTellsADamagedHeadOnce(t *testing.T) {
	whole, _, _ := played(t, small)
	names, err := whole.List()
	must(t, err)
	sound, err := Check(whole)
	must(t, err)
	for _, victim := range names {
		mem := NewMemory()
		for _, name := range names {
			data := whole.Bytes(name)
			if name == victim {
				data[entryHead] ^= 1
			}
			mem.Put(name, data)
		}
		found, err := Check(mem)
		if err != nil || len(found.Damage) != 1 || found.Damage[0].File != victim || found.Damage[0].Offset != 0 {
			t.Errorf("%s: %v, %v", victim, found.Damage, err)
		}
		if len(found.Held) != len(sound.Held) || found.Tombs != sound.Tombs || found.Bytes != sound.Bytes || found.ID != sound.ID {
			t.Errorf("%s: %+v, without the damage %+v", victim, found, sound)
		}
	}
}

// TestJournalOfAnotherVersion: a journal that older or newer software wrote is not damaged, and
// nothing is made of it that would have less in it.
func TestJournalOfAnotherVersion(t *testing.T) {
	whole, _, _ := played(t, small)
	names, err := whole.List()
	must(t, err)
	for other, use := range map[byte]string{oldVersion - 1: "an older one", version + 1: "a newer one"} {
		mem := NewMemory()
		for _, name := range names {
			data := whole.Bytes(name)
			at := entryHead + 1 + len(magic)
			data[at+1+int(data[at])] = other
			seal(data[:entryLen(data)], 0)
			mem.Put(name, data)
		}
		_, opened := Open(mem, small)
		_, checked := Check(mem)
		to := NewMemory()
		_, salvaged := Salvage(mem, to)
		for what, err := range map[string]error{"open": opened, "check": checked, "salvage": salvaged} {
			if !errors.Is(err, ErrVersion) || errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), "use "+use) {
				t.Errorf("%s version %d: %v", what, other, err)
			}
		}
	}
}

// TestCheckOfAnAttemptThatIsThereInPart checks that what belongs to no beginning is named as damage where nothing else is.
func TestCheckOfAnAttemptThatIsThereInPart(t *testing.T) {
	mem := NewMemory()
	w := &salvage{j: newJournal(mem, Options{}), g: newGroup()}
	must(t, w.j.create(segment{number: 1}))
	must(t, w.add(&entry{kind: kindStart, key: Key{"job", 1}, started: 1}))
	must(t, w.write())
	must(t, w.j.file.Close())
	found, err := Check(mem)
	must(t, err)
	if len(found.Damage) != 1 || found.Damage[0] == nil || !strings.Contains(found.Damage[0].Error(), "attempt 1 of job job") {
		t.Errorf("it finds %v", found.Damage)
	}
	if text := found.String(); !strings.Contains(text, "0 ended, 1 in part") {
		t.Errorf("it says %s", text)
	}
	if _, err := Open(mem, Options{}); !errors.Is(err, ErrCorrupt) {
		t.Errorf("opening it says %v", err)
	}
}
