package dispatcher

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/harpcaller/harp"
)

// TestSelects: each field of a notification leaves out what is not so.
func TestSelects(t *testing.T) {
	failed := harp.Event{Type: harp.EventJobFailed, Host: "db01", Procedure: "disk.check", State: harp.StateFailed, Batch: "b", Schedule: "nightly", Labels: map[string]string{"team": "db", "x": ""}}
	for _, c := range []struct {
		name string
		n    harp.Notification
		e    harp.Event
		want bool
	}{
		{"its type", harp.Notification{On: []string{"job.lost", "job.failed"}}, failed, true},
		{"the beginning of it", harp.Notification{On: []string{"job.*"}}, failed, true},
		{"another type", harp.Notification{On: []string{"job.fail", "host.*"}}, failed, false},
		{"all", harp.Notification{On: []string{"*"}}, failed, true},
		{"notifications", harp.Notification{On: []string{"*"}}, harp.Event{Type: harp.EventNotificationFailed}, false},
		{"its procedure", harp.Notification{On: []string{"*"}, Procedures: []string{"db.*", "disk.*"}}, failed, true},
		{"another procedure", harp.Notification{On: []string{"*"}, Procedures: []string{"disk"}}, failed, false},
		{"no procedure", harp.Notification{On: []string{"*"}, Procedures: []string{"*"}}, harp.Event{Type: harp.EventHostAway}, false},
		{"its state", harp.Notification{On: []string{"*"}, States: []harp.State{harp.StateLost, harp.StateFailed}}, failed, true},
		{"another state", harp.Notification{On: []string{"*"}, States: []harp.State{harp.StateLost}}, failed, false},
		{"its labels", harp.Notification{On: []string{"*"}, Labels: map[string]string{"team": "db", "x": ""}}, failed, true},
		{"another label", harp.Notification{On: []string{"*"}, Labels: map[string]string{"team": "web"}}, failed, false},
		{"an empty label that it has not", harp.Notification{On: []string{"*"}, Labels: map[string]string{"y": ""}}, failed, false},
		{"a run of the schedule", harp.Notification{On: []string{"*"}, Schedules: []string{"night*"}}, failed, true},
		{"a run of another schedule", harp.Notification{On: []string{"*"}, Schedules: []string{"day"}}, failed, false},
		{"the schedule", harp.Notification{On: []string{"*"}, Schedules: []string{"day"}}, harp.Event{Type: harp.EventScheduleFired, Schedule: "day"}, true},
		{"its host", harp.Notification{On: []string{"*"}, Target: "role=db"}, failed, true},
		{"another host", harp.Notification{On: []string{"*"}, Target: "role=db"}, harp.Event{Type: harp.EventHostAway, Host: "web01"}, false},
		{"no host", harp.Notification{On: []string{"*"}, Target: "role=db"}, harp.Event{Type: harp.EventBatchFailed}, false},
	} {
		notes := eventNotes{isTarget: func(host string) bool { return host == "db01" }}
		if got := selects(&c.n, &c.e, notes); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

// TestMessageBounds: what is told of an event is bounded, is one JSON value, and has no line that its text did not make.
func TestMessageBounds(t *testing.T) {
	e := &harp.Event{Type: harp.EventJobFailed, Job: "j", Host: "web01", Procedure: "p", Reason: "one\r\nBcc: x\x1b[31m " + strings.Repeat("é", 5000), Cursor: "c", Time: time.Unix(1, 0)}
	notes := eventNotes{details: func() map[string]any {
		return map[string]any{"args": map[string]any{"a": 1}, "result": strings.Repeat("r", harp.MaxMessageData)}
	}}
	m := newMessage(&harp.Notification{Name: "n", Include: []string{"args", "result"}}, e, notes)
	var data struct {
		Type    string
		Args    map[string]int
		Result  any
		LeftOut []string `json:"left_out"`
	}
	if err := json.Unmarshal(m.Data, &data); err != nil || len(m.Data) > harp.MaxMessageData || data.Type != "job.failed" || data.Args["a"] != 1 || data.Result != nil || fmt.Sprint(data.LeftOut) != "[result]" {
		t.Errorf("%d bytes, %+v, %v", len(m.Data), data, err)
	}
	if len(m.Subject) > 300 || strings.ContainsAny(m.Subject, "\r\n\x1b") || !strings.HasPrefix(m.Subject, "job.failed: p on web01 (one Bcc: x") {
		t.Errorf("%q", m.Subject)
	}
	if len(m.Text) > 4<<10 || strings.ContainsAny(m.Text, "\r\x1b") || strings.Contains(m.Text, "\nBcc") || !strings.Contains(m.Text, "harp job show j\n") {
		t.Errorf("%q", m.Text)
	}
}

// TestGathering: a digest counts all, and tells of the first of them.
func TestGathering(t *testing.T) {
	g := &gathering{First: 7, Begun: time.Unix(1, 0), Counts: map[string]int{}}
	for n := range 500 {
		g.add(&messageDocument{Type: fmt.Sprintf("t%d", n%(digestTypes+20)), Time: time.Unix(2, 0), Data: []byte(`{"n":` + fmt.Sprint(n) + `,"x":"` + strings.Repeat("x", 2000) + `"}`), Subject: "s"})
	}
	m := g.message(&harp.Notification{Name: "n"})
	var data digestData
	if err := json.Unmarshal(m.Data, &data); err != nil || data.Count != 500 || len(data.Counts) != digestTypes+1 || len(data.Events) == 0 || len(data.Events) > digestEvents || len(m.Data) > harp.MaxMessageData {
		t.Errorf("%d bytes: %d of %d, %d types, %v", len(m.Data), len(data.Events), data.Count, len(data.Counts), err)
	}
	if !strings.Contains(m.Text, fmt.Sprintf("and %d more", 500-len(data.Events))) || m.Subject != "500 events of n" {
		t.Errorf("%q\n%s", m.Subject, m.Text)
	}
}

// TestMessageID: ids tell stores, notifications and events apart, and sort as the events do.
func TestMessageID(t *testing.T) {
	ids := []string{messageID("a", "b c", 1), messageID("a", "b c", 255), messageID("a", "b c", 4096)}
	if ids[0] >= ids[1] || ids[1] >= ids[2] || messageID("a b", "c", 1) == ids[0] || messageID("a", "b d", 1) == ids[0] || messageID("a", "b c", 1) != ids[0] {
		t.Errorf("%q", ids)
	}
}
