package rows

import (
	"fmt"
	"testing"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/needs"
	"github.com/harpcaller/harp/store"
)

// TestAllocations holds what a job and a record may take from memory, with what the
// engine of the test takes. It does not depend on the machine.
func TestAllocations(t *testing.T) {
	needs.NoRaceDetector(t)
	s := opened(t, newTrial(), Options{})
	job := func() {
		j := started(t, s)
		end := about(j, store.End)
		end.Event.Value = harp.Value{1}
		applied(t, s, end)
	}
	if n := testing.AllocsPerRun(200, job); n > 144 {
		t.Errorf("a job takes %v allocations from its submission to its end", n)
	}
	j, next := started(t, s), 0
	records := make([]harp.Record, 400)
	for i := range records {
		records[i] = harp.Record{Time: noon, Kind: harp.KindData, Value: make(harp.Value, 100)}
	}
	batch := func() {
		a := store.Append{ID: j.ID, Attempt: j.Attempt, Fence: j.Fence, First: uint64(next), Records: records, Arrived: noon}
		if _, err := s.Append(t.Context(), a); err != nil {
			t.Fatal(err)
		}
		next += len(records)
	}
	if n := testing.AllocsPerRun(100, batch); n > 52 {
		t.Errorf("%d records take %v allocations to store", len(records), n)
	}
	read := func() {
		if got, err := s.Read(t.Context(), j.ID, 0, store.ReadLimit{Bytes: 100_000}); err != nil || len(got) < len(records) {
			t.Fatalf("%d records, %v", len(got), err)
		}
	}
	if n := testing.AllocsPerRun(100, read); n > 40 {
		t.Errorf("%d records take %v allocations to read", len(records), n)
	}
}

// TestMembersOfLongBatchesAreFoundAtOnce: callers that wait for members of batches whose hosts were not reached yet ask for each of them, again and
// again, and their ids do not say where they are in it.
func TestMembersOfLongBatchesAreFoundAtOnce(t *testing.T) {
	needs.NoRaceDetector(t)
	const hosts, batches = 10_000, 3
	s := opened(t, newTrial(), Options{})
	var ids []string
	for n := range batches {
		in := store.BatchSubmission{Request: harp.Submission{Request: []byte("request")}, Batch: store.Batch{
			ID: idAt(noon.Add(time.Duration(n) * time.Second)), Target: "*", Classes: []store.BatchClass{{}}, Plan: store.BatchPlan{Parallel: hosts, Waves: []int{hosts}}, Member: store.Job{Procedure: "p"},
		}}
		for n := range hosts {
			in.Hosts = append(in.Hosts, store.BatchHost{Name: fmt.Sprint("host", n)})
		}
		if _, err := s.SubmitBatch(t.Context(), in, noon); err != nil {
			t.Fatal(err)
		}
		ids = append(ids, harp.MemberID(in.Batch.ID, "host9500", 1))
	}
	find := func() {
		for _, i := range ids {
			if j, err := s.Job(t.Context(), i); err != nil || j.Host != "host9500" {
				t.Fatalf("it is %+v, %v", j, err)
			}
		}
	}
	if n := testing.AllocsPerRun(10, find); n > batches*3000 { // a row of a thousand names is read for each
		t.Errorf("a member of each of %d batches of %d takes %v allocations to find", batches, hosts, n)
	}
}

// TestPlacesAreBounded: the places are remembered of those batches that were asked about last, and of no more members than may be.
func TestPlacesAreBounded(t *testing.T) {
	var p places
	longest := store.Batch{Hosts: store.MaxBatchHosts}
	for n := range 3 * placesMost / namesMost {
		b := store.Batch{No: uint64(n + 1), Hosts: 1} //nolint:gosec // a small number
		before := p.of(&longest)
		if p.of(&b); p.of(&longest) != before {
			t.Fatalf("the one asked about last is forgotten for batch %d", n)
		}
		if p.members > placesMost || len(p.batches) > placesMost/namesMost {
			t.Fatalf("it is remembered of %d batches, and %d members", len(p.batches), p.members)
		}
	}
}
