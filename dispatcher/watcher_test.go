package dispatcher

import (
	"bytes"
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
)

func numbered(from, n, size int) []harp.Record {
	records := make([]harp.Record, n)
	for i := range records {
		records[i] = harp.Record{Seq: uint64(from + i), Value: bytes.Repeat([]byte{byte(from + i)}, size)}
	}
	return records
}

// onePage is as much as a watcher may be asked for.
var onePage = store.ReadLimit{Bytes: pageBytes}

func recordsFrom(t *watcher, seq uint64, most store.ReadLimit) []harp.Record {
	records, _ := t.recordsFrom(seq, most)
	return records
}

func TestAWatcherKeepsTheNewestRecordsWithinItsBytes(t *testing.T) {
	var ts watchers
	held := ts.follow("job")
	const size = 1000
	for from := 0; from < 2000; from += 100 {
		ts.notifyAppended("job", numbered(from, 100, size))
	}
	got := recordsFrom(held, 1999, onePage)
	if len(got) != 1 || got[0].Seq != 1999 {
		t.Errorf("the last record is %+v", got)
	}
	if recordsFrom(held, 0, onePage) != nil || recordsFrom(held, 2000, onePage) != nil {
		t.Error("the watcher has what it dropped or never had")
	}
	oldest := held.recent[0].Seq
	each := recordCost(held.recent[0])
	if kept := int(2000 - oldest); kept*each > watcherBytes || (kept+1)*each <= watcherBytes {
		t.Errorf("it keeps %d records of %d bytes", kept, size)
	}
	if n := len(recordsFrom(held, oldest, onePage)); n != int(2000-oldest) {
		t.Errorf("from the oldest on it has %d", n)
	}
	if n := len(recordsFrom(held, oldest, store.ReadLimit{Records: 7, Bytes: pageBytes})); n != 7 {
		t.Errorf("asked for 7 it gives %d", n)
	}
}

// Those who no longer follow take no part of the room that watchers have.
func TestFollowedJobsAreCounted(t *testing.T) {
	var ts watchers
	for n, id := range []string{"a", "b", "b"} {
		held := ts.follow(id)
		other := ts.follow("other")
		if got := ts.followed.Load(); got != 2 {
			t.Errorf("%d: %d jobs are followed, want 2", n, got)
		}
		ts.unfollow(other)
		ts.unfollow(held)
		if got := ts.followed.Load(); got != 0 || len(ts.jobs) != 0 {
			t.Errorf("%d: %d jobs are followed, %d held", n, got, len(ts.jobs))
		}
	}
}

func TestAWatcherThatMissedSomethingBeginsAnew(t *testing.T) {
	var ts watchers
	held := ts.follow("job")
	ts.notifyAppended("job", numbered(0, 10, 1))
	ts.notifyAppended("job", numbered(20, 10, 1))
	if recordsFrom(held, 5, onePage) != nil || len(recordsFrom(held, 20, onePage)) != 10 {
		t.Errorf("after a gap it has %v", held.recent)
	}
}

func TestAWatcherSharesNoMemoryWithItsReaders(t *testing.T) {
	var ts watchers
	held := ts.follow("job")
	ts.notifyAppended("job", numbered(1, 3, 4))
	got := recordsFrom(held, 1, onePage)
	got[0].Value[0] = 99
	_ = append(got[0].Value, 99) // must not reach the next record's value
	if again := recordsFrom(held, 1, onePage); again[0].Value[0] != 1 || again[1].Value[0] != 2 {
		t.Errorf("a reader changed the watcher: %v", again)
	}
}

func TestWatchersOfJobsNobodyWaitsForAreNotKept(t *testing.T) {
	var ts watchers
	a, b := ts.acquire("job"), ts.acquire("job")
	if a != b {
		t.Error("two who wait for a job hold different watchers")
	}
	ts.release(a)
	if ts.findWatcher("job") == nil {
		t.Error("the watcher is gone while somebody holds it")
	}
	ts.release(b)
	if ts.findWatcher("job") != nil {
		t.Error("the watcher is kept though nobody holds it")
	}
	ts.notifyAppended("job", numbered(0, 1, 1))
	ts.notifyEnded(&store.Job{ID: "job"}, nil)
}

func TestGrant(t *testing.T) {
	const m = time.Minute
	for _, c := range []struct {
		asked, own, byDefault, most, want time.Duration
		refused                           bool
	}{
		{0, 0, 10 * m, harp.NoLimit, 10 * m, false},
		{harp.NoLimit, 0, 10 * m, harp.NoLimit, harp.NoLimit, false},
		{harp.NoLimit, 0, 10 * m, 20 * m, 0, true},
		{15 * m, 0, 10 * m, 20 * m, 15 * m, false},
		{0, m, 10 * m, 20 * m, m, false},
		{2 * m, m, 10 * m, 20 * m, 0, true},
		{m, 30 * m, 10 * m, 20 * m, m, false},
		{0, 30 * m, 10 * m, 20 * m, 20 * m, false},
	} {
		got, err := grant("silence_timeout", c.asked, c.own, c.byDefault, c.most)
		if got != c.want || errors.Is(err, harp.ErrRefused) != c.refused {
			t.Errorf("asked %v, own %v, default %v, most %v: %v, %v", c.asked, c.own, c.byDefault, c.most, got, err)
		}
	}
}

func TestConfigIsChecked(t *testing.T) {
	for field, cfg := range map[string]Config{
		"heartbeat":              {Heartbeat: -1},
		"offline_wait":           {OfflineWait: -time.Second},
		"limits.silence_timeout": {Limits: Limits{SilenceTimeout: -1}},
		"limits.attempts":        {Limits: Limits{Attempts: -1}},
		"limits.agent_sessions":  {Limits: Limits{AgentSessions: -1}},
	} {
		_, err := cfg.withDefaults()
		var wrong *harp.FieldError
		if !errors.As(err, &wrong) || wrong.Field != field {
			t.Errorf("%s: error is %v", field, err)
		}
	}
}

func TestCheckHosts(t *testing.T) {
	for field, specs := range map[string][]HostSpec{
		"":                 {{Name: "a"}, {Name: "b", Address: "10.0.0.1"}, {Name: "c", Address: "[::1]:1"}, {Name: "d", Address: "::1"}},
		"hosts[0].name":    {{Address: "10.0.0.1"}},
		"hosts[1].name":    {{Name: "a"}, {Name: "a"}},
		"hosts[0].address": {{Name: "a", Address: "10.0.0.1:1:2:x]"}},
	} {
		err := checkHosts(specs)
		var wrong *harp.FieldError
		if field == "" && err != nil || field != "" && (!errors.As(err, &wrong) || wrong.Field != field) {
			t.Errorf("%q: error is %v", field, err)
		}
	}
}

// Who waits is told how the job ended, unless its value did not come with the end: then
// it is of an earlier attempt.
func TestWhoWaitsIsToldTheEnd(t *testing.T) {
	for name, c := range map[string]struct {
		hasValue, isTold bool
		value            harp.Value
	}{
		"no value":             {isTold: true},
		"a value":              {hasValue: true, isTold: true, value: harp.Value{1}},
		"an earlier value":     {hasValue: true},
		"a value, and no more": {value: harp.Value{1}},
	} {
		t.Run(name, func(t *testing.T) {
			var ts watchers
			held := ts.acquire("job")
			ts.notifyEnded(&store.Job{ID: "job", Life: store.Life{HasValue: c.hasValue}}, c.value)
			<-held.ends
			if (held.ended != nil) != c.isTold {
				t.Fatalf("told %v", held.ended)
			}
			if c.isTold && string(held.value) != string(c.value) {
				t.Errorf("the value is %v", held.value)
			}
		})
	}
}

// keptBytes is what the watchers hold of records.
func keptBytes(ts *watchers) (n int) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	for _, t := range ts.jobs {
		n += t.bytes
	}
	return n
}

// A caller that waits for a result does not read records: none are kept for it.
func TestWaitersForAResultKeepNoRecords(t *testing.T) {
	var ts watchers
	for i := range 100 {
		id := strconv.Itoa(i)
		ts.acquire(id)
		ts.notifyAppended(id, numbered(0, 300, 1000))
	}
	if n := keptBytes(&ts); n != 0 {
		t.Errorf("%d bytes of records are kept for 100 that wait for a result", n)
	}
}

// Followers of many jobs keep no more than of few.
func TestWatchersOfManyJobsStayWithinTheirBytes(t *testing.T) {
	var ts watchers
	for i := range 2 * allWatchersBytes / watcherBytes {
		ts.follow(strconv.Itoa(i))
	}
	for i := range 2 * allWatchersBytes / watcherBytes {
		ts.notifyAppended(strconv.Itoa(i), numbered(0, 300, 1000))
	}
	if n := keptBytes(&ts); n > allWatchersBytes || n < allWatchersBytes*9/10 {
		t.Errorf("%d bytes are kept, of at most %d", n, allWatchersBytes)
	}
}

// A watcher keeps no records once nobody follows, though somebody waits for the result, and
// a new follower does not take what is left for all there is.
func TestAWatcherForgetsWhenNobodyFollows(t *testing.T) {
	var ts watchers
	ts.acquire("job")
	held := ts.follow("job")
	ts.notifyAppended("job", numbered(0, 10, 10))
	if _, end := held.recordsFrom(3, store.ReadLimit{Records: 1, Bytes: pageBytes}); end != 10 {
		t.Errorf("a page that is cut short ends at %d of 10", end)
	}
	if !held.isAt(10) {
		t.Error("who has read all is not at the end")
	}
	ts.unfollow(held)
	if keptBytes(&ts) != 0 {
		t.Errorf("it keeps %d records", len(held.recent))
	}
	ts.notifyAppended("job", numbered(10, 5, 10))
	if again := ts.follow("job"); again.isAt(10) || again.isAt(15) || recordsFrom(again, 0, onePage) != nil {
		t.Error("it knows where the job ends without having been told")
	}
}

// A record that alone is more than a watcher may keep is not kept; a follower that has read it
// is at the end all the same.
func TestAWatcherWithoutRoomKnowsItsEnd(t *testing.T) {
	var ts watchers
	held := ts.follow("job")
	ts.notifyAppended("job", numbered(0, 1, watcherBytes))
	if keptBytes(&ts) != 0 || recordsFrom(held, 0, onePage) != nil {
		t.Errorf("it keeps %d bytes", keptBytes(&ts))
	}
	if !held.isAt(1) {
		t.Error("it does not know its end")
	}
}
