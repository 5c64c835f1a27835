package badger

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"

	"github.com/dgraph-io/badger/v4/table"
	"github.com/dgraph-io/badger/v4/y"
	"github.com/dgraph-io/ristretto/v2/z"

	"github.com/harpcaller/harp/store"
	"github.com/harpcaller/harp/store/internal/rows"
)

// errUnmade is the error of a compaction that has made no table of some rows.
var errUnmade = errors.New("a compaction could not make all of its tables")

// What badger says of a row beside its value: that it was deleted, or that in place of the value there is where that lies
// in the value log.
const (
	deletedBit = 1 << 0
	pointerBit = 1 << 1
)

// checkMerge returns errUnmade if the tables that the manifest names now do not have all that was
// in those which they replace, store.ErrDamaged if badger could not read all of that. Each has a range of
// keys for itself: before, between and behind those ranges there may only be what a compaction leaves out.
func (m *manifest) checkMerge(now levels) (err error) {
	replaced := m.levels.without(now)
	if len(replaced) == 0 {
		return nil // a table was made of what is in memory
	}
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if recover() != nil {
			err = fmt.Errorf("store/badger: %w: a table of a compaction: %w", store.ErrDamaged, errUnreadable)
		}
	}()
	files := &tableFiles{dir: m.dir}
	defer files.close()
	read, err := files.open(replaced)
	if err != nil {
		return err
	}
	for _, t := range read {
		if !canIterate(t) {
			return fmt.Errorf("store/badger: %w: table %s, of which a compaction left rows out", store.ErrDamaged, table.NewFilename(t.ID(), m.dir))
		}
	}
	made, err := files.open(now.without(m.levels))
	if err != nil {
		return err
	}
	below := sync.OnceValues(func() (bool, error) { return files.overlap(m.levels.below(replaced), read) })
	it := iterate(read)
	defer it.Close()
	it.Rewind()
	for _, t := range made {
		if err := m.checkGap(it, row(t.Smallest()), below); err != nil {
			return err
		}
		it.Seek(t.Biggest())
		nextRow(it)
	}
	return m.checkGap(it, nil, below)
}

// canIterate reports whether iterating over a table meets all of its rows, as they were written but for a value. An
// iterator takes a block that it cannot read for the end of the table, and VerifyChecksum panics there. Where a checksum
// differs, the damage must be found in a value, which rows finds as well; else it is in a key, a version or a flag, by
// which a row would be gone, or an older one take its place.
func canIterate(t *table.Table) bool {
	if t.VerifyChecksum() == nil {
		return true
	}
	it := t.NewIterator(table.NOCACHE)
	defer it.Close()
	var last []byte
	count, found := uint32(0), false
	for it.Rewind(); it.Valid(); it.Next() {
		key, value := it.Key(), it.Value()
		if count > 0 && y.CompareKeys(last, key) >= 0 || t.DoesNotHave(y.Hash(row(key))) || value.ExpiresAt != 0 {
			return false
		}
		found = found || value.Meta&(deletedBit|pointerBit) == 0 && !rows.IsWhole(row(key), value.Value)
		last = append(last[:0], key...)
		count++
	}
	return found && count == t.KeyCount()
}

// checkGap returns errUnmade if a compaction was to keep a row before one of its tables, or any of
// the rest.
func (m *manifest) checkGap(it y.Iterator, before []byte, below func() (bool, error)) error {
	for ; it.Valid() && (before == nil || bytes.Compare(row(it.Key()), before) < 0); nextRow(it) {
		if ok, err := m.isLeftOut(it.Key(), it.Value(), below); err != nil || !ok {
			return cmp.Or(err, errUnmade)
		}
	}
	return nil
}

// isLeftOut reports whether a compaction leaves a row out, of which this is the newest version: one
// that was deleted, where no snapshot shows what it was and levels below may not have it.
func (m *manifest) isLeftOut(key []byte, newest y.ValueStruct, below func() (bool, error)) (bool, error) {
	if bytes.HasPrefix(key, mark) {
		return true, nil
	}
	if newest.Meta&deletedBit == 0 || y.ParseTs(key) > m.discard.Load() {
		return false, nil
	}
	may, err := below()
	return !may, err
}

// iterate iterates over the rows of tables, with the newest version of each first.
func iterate(tables []*table.Table) y.Iterator {
	var all []y.Iterator
	for _, t := range tables {
		all = append(all, t.NewIterator(table.NOCACHE))
	}
	return table.NewMergeIterator(all, false)
}

// nextRow leaves out all other versions of a row.
func nextRow(it y.Iterator) {
	if !it.Valid() {
		return
	}
	for last := bytes.Clone(row(it.Key())); it.Valid() && bytes.Equal(row(it.Key()), last); {
		it.Next()
	}
}

// tableFiles are tables that are mapped.
type tableFiles struct {
	dir    string
	mapped [][]byte
}

// open opens tables, in the order of their keys.
func (f *tableFiles) open(which levels) ([]*table.Table, error) {
	var opened []*table.Table
	for id := range which {
		content, err := mapTable(table.NewFilename(id, f.dir))
		if err != nil {
			return nil, err
		}
		f.mapped = append(f.mapped, content)
		t, err := table.OpenInMemoryTable(content, id, &table.Options{})
		if err != nil {
			return nil, err
		}
		opened = append(opened, t)
	}
	slices.SortFunc(opened, func(a, b *table.Table) int { return y.CompareKeys(a.Smallest(), b.Smallest()) })
	return opened, nil
}

func (f *tableFiles) close() {
	for _, content := range f.mapped {
		z.Munmap(content) //nolint:errcheck // nothing was written
	}
}

// overlap reports whether tables have keys within the range of others, from the first to the last.
func (f *tableFiles) overlap(which levels, others []*table.Table) (bool, error) {
	first, last := row(others[0].Smallest()), row(others[0].Biggest())
	for _, t := range others {
		last = slices.MaxFunc([][]byte{last, row(t.Biggest())}, bytes.Compare)
	}
	tables, err := f.open(which)
	return slices.ContainsFunc(tables, func(t *table.Table) bool {
		return bytes.Compare(row(t.Smallest()), last) <= 0 && bytes.Compare(row(t.Biggest()), first) >= 0
	}), err
}
