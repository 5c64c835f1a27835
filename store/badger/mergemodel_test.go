package badger_test

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/dgraph-io/badger/v4/table"
	"github.com/dgraph-io/badger/v4/y"
	"pgregory.net/rapid"

	harpbadger "github.com/harpcaller/harp/store/badger"
)

// TestMergeModel merges tables as badger does, with rows that were deleted, several versions, and
// tables further below, and leaves out what was deleted where badger does. If all tables are made nothing is
// missing; if any is not made, something is.
func TestMergeModel(t *testing.T) {
	dir := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		m := merging{dir: dir, before: map[uint64]uint32{}, after: map[uint64]uint32{}}
		version := rapid.Uint64Range(1, 40)
		entries := rapid.SliceOfNDistinct(rapid.Custom(func(t *rapid.T) mergeEntry {
			return mergeEntry{rapid.IntRange(0, 60).Draw(t, "row"), version.Draw(t, "version"), rapid.Bool().Draw(t, "deleted")}
		}), 1, 80, func(e mergeEntry) [2]uint64 { return [2]uint64{uint64(e.row), e.version} }).Draw(t, "entries")
		discard := version.Draw(t, "discard")
		var read [3][]mergeEntry // two tables above, one below
		for _, e := range entries {
			n := rapid.IntRange(0, 2).Draw(t, "table")
			read[n] = append(read[n], e)
		}
		for n, entries := range read {
			if len(entries) > 0 {
				m.before[m.make(t, entries)] = []uint32{0, 0, 5}[n]
			}
		}
		first, last := slices.MinFunc(entries, byRow).row, slices.MaxFunc(entries, byRow).row
		overlapped := false
		for range rapid.IntRange(0, 2).Draw(t, "below") {
			from := rapid.IntRange(-20, 80).Draw(t, "from")
			to := from + rapid.IntRange(0, 10).Draw(t, "to")
			id := m.make(t, []mergeEntry{{row: from, version: 1}, {row: to, version: 2}})
			m.before[id], m.after[id] = 6, 6
			overlapped = overlapped || from <= last && to >= first
		}
		kept := keptOf(entries, discard, overlapped)
		var made []uint64
		for len(kept) > 0 {
			n := rapid.IntRange(1, len(kept)).Draw(t, "rows of a table")
			id := m.make(t, slices.Concat(kept[:n]...))
			m.after[id], made, kept = 5, append(made, id), kept[n:]
		}
		if err := harpbadger.CheckMerge(dir, m.before, m.after, discard); err != nil {
			t.Fatalf("nothing is missing: %v", err)
		}
		if len(made) == 0 {
			return
		}
		lost := maps.Clone(m.after)
		for _, id := range rapid.SliceOfNDistinct(rapid.SampledFrom(made), 1, -1, rapid.ID).Draw(t, "lost") {
			delete(lost, id)
		}
		if err := harpbadger.CheckMerge(dir, m.before, lost, discard); !errors.Is(err, harpbadger.ErrUnmade) {
			t.Fatalf("%d of %d tables are missing: %v, want ErrUnmade", len(m.after)-len(lost), len(made), err)
		}
	})
}

type mergeEntry struct {
	row     int
	version uint64
	deleted bool
}

func byRow(a, b mergeEntry) int { return cmp.Compare(a.row, b.row) }

func (e mergeEntry) key() []byte { return y.KeyWithTs(fmt.Appendf(nil, "%04d", e.row+100), e.version) }

// keptOf are the entries that badger keeps of those that it reads, row by row.
func keptOf(entries []mergeEntry, discard uint64, overlapped bool) (kept [][]mergeEntry) {
	sorted := slices.SortedFunc(slices.Values(entries), func(a, b mergeEntry) int { return y.CompareKeys(a.key(), b.key()) })
	for len(sorted) > 0 {
		n := 1
		for n < len(sorted) && sorted[n].row == sorted[0].row {
			n++
		}
		var of []mergeEntry
		for _, e := range sorted[:n] {
			if e.version > discard {
				of = append(of, e)
				continue
			}
			if !e.deleted || overlapped {
				of = append(of, e)
			}
			break
		}
		if len(of) > 0 {
			kept = append(kept, of)
		}
		sorted = sorted[n:]
	}
	return kept
}

// merging makes tables in a directory.
type merging struct {
	dir           string
	before, after map[uint64]uint32
}

var mergedTables atomic.Uint64

func (m *merging) make(t *rapid.T, entries []mergeEntry) (id uint64) {
	builder := table.NewTableBuilder(table.Options{BlockSize: 64, BloomFalsePositive: 0.01})
	defer builder.Close()
	for _, e := range slices.SortedFunc(slices.Values(entries), func(a, b mergeEntry) int { return y.CompareKeys(a.key(), b.key()) }) {
		value := y.ValueStruct{Value: []byte("value")}
		if e.deleted {
			value = y.ValueStruct{Meta: 1}
		}
		builder.Add(e.key(), value, 0)
	}
	id = mergedTables.Add(1)
	if err := os.WriteFile(table.NewFilename(id, m.dir), builder.Finish(), 0o600); err != nil {
		t.Fatal(err)
	}
	return id
}
