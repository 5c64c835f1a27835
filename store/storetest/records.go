package storetest

import (
	"bytes"
	"fmt"
	"reflect"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
)

var recording = []rule{
	{"records/missing", "where records are missing one says how many, once, and those behind have their own numbers", func(w *world) {
		j := w.running()
		w.append(j, 0, harp.Record{Time: w.now, Kind: harp.KindData, Value: value(0)})
		gap := store.Append{ID: j.ID, Attempt: j.Attempt, Fence: j.Fence, First: 1, Missing: 1 << 40, Arrived: w.now}
		for range 2 {
			got, err := w.st.Append(w.ctx(), gap)
			w.must(err)
			if got.Records != 1+1<<40 {
				w.Fatalf("there are %d records", got.Records)
			}
		}
		w.append(j, 1+1<<40, harp.Record{Time: w.now, Kind: harp.KindData, Value: value(1)})
		w.apply(j, store.End)
		want := []harp.Record{
			{Attempt: 1, Time: w.now, Kind: harp.KindData, Value: value(0)},
			{Seq: 1, Attempt: 1, Time: w.now, Kind: harp.KindLog, Missing: 1 << 40},
			{Seq: 1 + 1<<40, Attempt: 1, Time: w.now, Kind: harp.KindData, Value: value(1)},
		}
		for from, n := range map[uint64]int{0: 0, 1: 1, 2: 2, 1 << 40: 2, 1 + 1<<40: 2, 2 + 1<<40: 3} {
			got, err := w.st.Read(w.ctx(), j.ID, from, store.ReadLimit{Bytes: 1 << 20})
			w.must(err)
			if len(got)+n != 3 || len(got) > 0 && !reflect.DeepEqual(got, want[n:]) {
				w.Fatalf("from %d there is %+v, want %+v", from, got, want[n:])
			}
		}
		gap.Missing = 2 << 40
		_, err := w.st.Append(w.ctx(), gap)
		w.wants(err, store.ErrFenced)
	}},
	{"records/whole", "records come back as they were given, numbered, from any number on", func(w *world) {
		j := w.running()
		var want []harp.Record
		for i := range 10 {
			r := harp.Record{Time: w.now.Add(time.Duration(i)), Kind: []harp.RecordKind{harp.KindData, harp.KindStdout}[i%2], Value: value(i)}
			if i == 5 {
				r.Truncated, r.Partial = 12, true
			}
			got := w.append(j, uint64(i), r)
			r.Seq, r.Attempt = uint64(i), 1
			want = append(want, r)
			if got.Records != uint64(i+1) || got.Attempts[0].Next != uint64(i+1) || got.Stored == 0 {
				w.Fatalf("after %d the row has %d", i+1, got.Records)
			}
		}
		for from := range 12 {
			got, err := w.st.Read(w.ctx(), j.ID, uint64(from), store.ReadLimit{Bytes: 1 << 20})
			w.must(err)
			if len(got)+min(from, 10) != 10 {
				w.Fatalf("from %d there are %d records, want %d", from, len(got), 10-min(from, 10))
			}
			for i, r := range got {
				if !reflect.DeepEqual(r, want[from+i]) {
					w.Fatalf("record is %+v, want %+v", r, want[from+i])
				}
			}
		}
	}},
	{"records/again", "what is stored already is not stored again, wherever the repeat begins", func(w *world) {
		j := w.running()
		w.append(j, 0, values(0, 10)...)
		w.append(j, 0, values(0, 10)...)
		w.append(j, 7, values(7, 15)...)
		got := w.append(j, 0, values(0, 12)...)
		if got.Records != 15 {
			w.Fatalf("it has %d records, want 15", got.Records)
		}
		w.records(j, 15)
	}},
	{"records/gap", "records that do not follow are ErrGap and nothing of them is stored", func(w *world) {
		j := w.running()
		w.append(j, 0, values(0, 3)...)
		_, err := w.st.Append(w.ctx(), w.appending(j, 4, values(4, 6)...))
		w.wants(err, store.ErrGap)
		w.records(j, 3)
	}},
	{"records/fenced", "records of another attempt, under another fence or of a job that has ended are ErrFenced", func(w *world) {
		j := w.running()
		a := w.appending(j, 0, values(0, 1)...)
		a.Fence++
		_, err := w.st.Append(w.ctx(), a)
		w.wants(err, store.ErrFenced)
		a = w.appending(j, 0, values(0, 1)...)
		a.Attempt++
		_, err = w.st.Append(w.ctx(), a)
		w.wants(err, store.ErrFenced)
		_, err = w.st.Append(w.ctx(), w.appending(w.submit(on("away")), 0, values(0, 1)...))
		w.wants(err, store.ErrFenced)
		w.append(j, 0, values(0, 2)...)
		w.apply(j, store.End)
		w.append(j, 0, values(0, 2)...) // a repeat is no-op
		_, err = w.st.Append(w.ctx(), w.appending(j, 2, values(2, 3)...))
		w.wants(err, store.ErrFenced)
		w.records(j, 2)
	}},
	{"records/late", "the remaining records of a lost job's last attempt are stored", func(w *world) {
		j := w.running()
		w.append(j, 0, values(0, 2)...)
		w.apply(j, store.Lose)
		if got := w.append(j, 2, values(2, 4)...); got.State != harp.StateLost || got.Records != 4 {
			w.Fatalf("it is %s with %d records", got.State, got.Records)
		}
		w.records(j, 4)
	}},
	{"records/bytes", "a read has about as many bytes as asked for, and at least one record", func(w *world) {
		j := w.running()
		big := harp.Value(bytes.Repeat([]byte{0xc0}, 10_000))
		w.append(j, 0, harp.Record{Value: big}, harp.Record{Value: big}, harp.Record{Value: big}, harp.Record{Value: big})
		for most, want := range map[int]int{0: 1, 1: 1, 10_000: 1, 25_000: 2, 1 << 20: 4} {
			got, err := w.st.Read(w.ctx(), j.ID, 0, store.ReadLimit{Bytes: most})
			w.must(err)
			if len(got) != want {
				w.Fatalf("%d bytes give %d records, want %d", most, len(got), want)
			}
		}
	}},
	{"records/number", "a read has at most as many records as asked for, from wherever it begins", func(w *world) {
		j := w.running()
		for first := range 3 {
			w.append(j, uint64(4*first), values(4*first, 4*first+4)...)
		}
		for _, c := range []struct{ from, most, want int }{{0, 1, 1}, {0, 4, 4}, {0, 5, 5}, {3, 1, 1}, {3, 6, 6}, {6, 6, 6}, {6, 7, 6}, {0, 0, 12}} {
			got, err := w.st.Read(w.ctx(), j.ID, uint64(c.from), store.ReadLimit{Records: c.most, Bytes: 1 << 20})
			w.must(err)
			if len(got) != c.want || got[0].Seq != uint64(c.from) || got[c.want-1].Seq != uint64(c.from+c.want-1) {
				w.Fatalf("%d from %d give %d, want %d", c.most, c.from, len(got), c.want)
			}
		}
	}},
	{"records/large", "records of any size and number survive, and can be read page by page", func(w *world) {
		j := w.running()
		next := uint64(0)
		for i := range 20 {
			var batch []harp.Record
			for k := range 30 {
				batch = append(batch, harp.Record{Value: harp.Value(bytes.Repeat([]byte{byte(i), byte(k)}, 1+k*i*40))})
			}
			w.append(j, next, batch...)
			next += 30
		}
		w.append(j, next, harp.Record{Value: harp.Value(bytes.Repeat([]byte{9}, 2<<20))})
		from := uint64(0)
		for from <= next {
			page, err := w.st.Read(w.ctx(), j.ID, from, store.ReadLimit{Bytes: 100_000})
			w.must(err)
			if len(page) == 0 {
				w.Fatalf("nothing from %d of %d", from, next)
			}
			for _, r := range page {
				i, k := int(r.Seq/30), int(r.Seq%30)
				want := bytes.Repeat([]byte{byte(i), byte(k)}, 1+k*i*40)
				if r.Seq == next {
					want = bytes.Repeat([]byte{9}, 2<<20)
				}
				if r.Seq != from || !bytes.Equal(r.Value, want) {
					w.Fatalf("record %d has %d bytes, want %d with %d", r.Seq, len(r.Value), from, len(want))
				}
				from++
			}
		}
	}},
	{"records/alone", "the records of one job are not another's", func(w *world) {
		a, b := w.running(), w.running()
		w.append(a, 0, values(0, 3)...)
		w.records(a, 3)
		w.records(b, 0)
	}},
}

func value(i int) harp.Value {
	v, err := harp.NewValue(fmt.Sprint("record ", i))
	if err != nil {
		panic(err)
	}
	return v
}

func values(from, to int) []harp.Record {
	var list []harp.Record
	for i := from; i < to; i++ {
		list = append(list, harp.Record{Kind: harp.KindData, Value: value(i)})
	}
	return list
}

func (w *world) appending(j *store.Job, first uint64, records ...harp.Record) store.Append {
	return store.Append{ID: j.ID, Attempt: j.Attempt, Fence: j.Fence, First: first, Records: records, Arrived: w.now}
}

func (w *world) append(j *store.Job, first uint64, records ...harp.Record) *store.Job {
	w.Helper()
	got, err := w.st.Append(w.ctx(), w.appending(j, first, records...))
	w.must(err)
	return got
}

// records checks that a job has the first n of values.
func (w *world) records(j *store.Job, n int) {
	w.Helper()
	got, err := w.st.Read(w.ctx(), j.ID, 0, store.ReadLimit{Bytes: 1 << 20})
	w.must(err)
	if len(got) != n {
		w.Fatalf("%d records, want %d", len(got), n)
	}
	for i, r := range got {
		if r.Seq != uint64(i) || !bytes.Equal(r.Value, value(i)) {
			w.Fatalf("record %d is %+v", i, r)
		}
	}
}
