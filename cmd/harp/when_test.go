package main

import (
	"strings"
	"testing"
	"time"

	"github.com/harpcaller/harp"
)

func TestTimesAreTakenBackAsTheyArePrinted(t *testing.T) {
	zone := time.FixedZone("", 5400)
	was := time.Local
	time.Local = zone
	t.Cleanup(func() { time.Local = was })
	now := time.Date(2026, 3, 5, 6, 30, 0, 0, zone)
	at := time.Date(2026, 3, 5, 4, 12, 7, 0, zone)
	for _, form := range []times{timesLocal, timesISO, timesUnix} {
		text := form.clock(at, now)
		if got, err := parseMoment(text, now, false); err != nil || !got.Equal(at) {
			t.Errorf("%s: %s is taken for %v, %v", &form, text, got, err)
		}
	}
	for text, want := range map[string]time.Time{
		timesRelative.clock(now.Add(-3*time.Hour), now): now.Add(-3 * time.Hour),
		timesRelative.clock(now.Add(3*time.Hour), now):  now.Add(3 * time.Hour),
		"2026-03-04":                time.Date(2026, 3, 4, 0, 0, 0, 0, zone),
		"2026-03-04 05:06":          time.Date(2026, 3, 4, 5, 6, 0, 0, zone),
		"2026-03-04T05:06:07":       time.Date(2026, 3, 4, 5, 6, 7, 0, zone),
		"2026-03-04 05:06:07.5Z":    time.Date(2026, 3, 4, 5, 6, 7, 5e8, time.UTC),
		"2026-03-04T05:06:07+02:00": time.Date(2026, 3, 4, 3, 6, 7, 0, time.UTC),
		"06:00":                     time.Date(2026, 3, 5, 6, 0, 0, 0, zone),
		"06:31:00.5":                time.Date(2026, 3, 4, 6, 31, 0, 5e8, zone),
		"today":                     time.Date(2026, 3, 5, 0, 0, 0, 0, zone),
		"yesterday":                 time.Date(2026, 3, 4, 0, 0, 0, 0, zone),
		"now":                       now,
		"1w":                        now.AddDate(0, 0, -7),
		"90s":                       now.Add(-90 * time.Second),
		"1769860800.25":             time.Unix(1769860800, 25e7),
	} {
		if got, err := parseMoment(text, now, true); err != nil || !got.Equal(want) {
			t.Errorf("%q: got %v, %v, want %v", text, got, err, want)
		}
	}
	if got, err := parseMoment("06:00", now, false); err != nil || !got.Equal(time.Date(2026, 3, 6, 6, 0, 0, 0, zone)) {
		t.Errorf("06:00 to come: got %v, %v", got, err)
	}
	for _, text := range []string{"", "noon", "-5s", "25:00", "2026-13-01", "3 ago", "12345", "1769860800.x", "2026-03-04 Z"} {
		if got, err := parseMoment(text, now, true); err == nil {
			t.Errorf("%q is taken for %v", text, got)
		}
	}
}

func TestJobsAreListedByWhoAndByArguments(t *testing.T) {
	f := ended(t, nil)
	got := runFake(t, t.Context(), f, nil, "job", "ls", "--by", "ada", "--args", "to:=3", "--args", "name=x y", "--args", `in:={"b":1,"a":2}`)
	if got.code != 0 || f.filter.By != "ada" || f.filter.Args["to"] != "3" || f.filter.Args["name"] != "x y" || f.filter.Args["in"] != `{"a":2,"b":1}` {
		t.Errorf("got %+v, asked for %+v", got, f.filter)
	}
	for _, word := range []string{"to", "=3", "to:=x"} {
		if got := runFake(t, t.Context(), f, nil, "job", "ls", "--args", word); got.code != exitUsage {
			t.Errorf("%s: got %+v", word, got)
		}
	}
	if got := runFake(t, t.Context(), f, nil, "job", "ls", "--args", "a=1", "--args", "a=2"); got.code != exitUsage {
		t.Errorf("one twice: got %+v", got)
	}
}

func TestEventsSinceATime(t *testing.T) {
	f := ended(t, nil)
	f.feed.events = []harp.Event{{Cursor: "7", Time: noon, Type: harp.EventHostAway, Host: "demo1"}}
	f.feed.atEnd = func() {}
	for _, verb := range []string{"ls", "follow --no-wait"} {
		args := append([]string{"event"}, strings.Fields(verb+" --since 2026-01-31T11:00:00Z")...)
		got := runFake(t, t.Context(), f, nil, args...)
		if want := noon.Add(-time.Hour); got.code != 0 || !strings.Contains(got.stdout, "host.away") || !f.feed.selected.Since.Equal(want) || f.feed.selected.After != harp.EventsFromStart {
			t.Errorf("%s: got %+v, asked for %+v", verb, got, f.feed.selected)
		}
	}
	if got := runFake(t, t.Context(), f, nil, "event", "ls", "-o", "json"); !strings.HasPrefix(got.stdout, `{"v":1,"events":[{"cursor":"7",`) {
		t.Errorf("got %+v", got)
	}
	f.feed.selected = harp.EventFilter{}
	if got := runFake(t, t.Context(), f, nil, "event", "ls"); got.code != 0 || f.feed.selected.After != harp.EventsFromStart {
		t.Errorf("got %+v, asked for %+v", got, f.feed.selected)
	}
}

func TestFollowSinceATime(t *testing.T) {
	for since, want := range map[string]uint64{"2026-01-31T12:00:00Z": 0, "2026-01-31T12:00:01Z": 1, "2026-01-31T12:00:01.5Z": 2, "2026-01-31T13:00:00Z": 3, "2": 2} {
		f := ended(t, nil)
		for i := range f.records[firstID] {
			f.records[firstID][i].Time = noon.Add(time.Duration(i) * time.Second)
		}
		got := runFake(t, t.Context(), f, nil, "job", "follow", firstID, "--since", since)
		if from := f.queried[len(f.queried)-1].From; got.code != 0 || from != want {
			t.Errorf("%s: got %+v from %d, want %d", since, got, from, want)
		}
	}
	if got := runFake(t, t.Context(), ended(t, nil), nil, "job", "follow", firstID, "--since", "x"); got.code != exitUsage {
		t.Errorf("got %+v", got)
	}
}
