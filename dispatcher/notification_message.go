package dispatcher

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/text"
	"github.com/harpcaller/harp/internal/wire"
	"github.com/harpcaller/harp/notify"
	"github.com/harpcaller/harp/store"
	"github.com/harpcaller/harp/window"
)

// Types of messages that are about no event.
const (
	digestType = "digest"
	testType   = "test"
)

const (
	digestEvents  = 50       // that a digest tells of one by one
	digestBytes   = 48 << 10 // of them, about
	digestTypes   = 100      // of events that are counted apart
	maxTold       = 1 << 10  // bytes of a text in a message for people
	maxToldLabels = 16
)

// messageDocument is what is stored of a message.
type messageDocument struct {
	Type    string    `msgpack:"type"`
	Time    time.Time `msgpack:"time"`
	Data    []byte    `msgpack:"data"` // JSON
	Subject string    `msgpack:"subject"`
	Text    string    `msgpack:"text"`
	Store   string    `msgpack:"store,omitempty"` // the id of the one in which it was made: restored from a backup it is the same message

	Tries   int       `msgpack:"tries,omitempty"`
	Tried   time.Time `msgpack:"tried,omitempty"`  // the last time
	Answer  string    `msgpack:"answer,omitempty"` // that of the last try
	Due     time.Time `msgpack:"due,omitempty"`    // of the next
	GivenUp bool      `msgpack:"givenup,omitempty"`
}

// message is what a sender gets.
func (m *messageDocument) message(id string) notify.Message {
	return notify.Message{ID: id, Type: m.Type, Time: m.Time, Data: m.Data, Subject: m.Subject, Text: m.Text}
}

// waits is for how long the message waits for its next try, from the last one on; one that was not tried does not.
func (m *messageDocument) waits() time.Duration {
	if m.Tries == 0 {
		return 0
	}
	return min(m.Due.Sub(m.Tried), notifyLongest)
}

// messageID is the id of the message that a notification has of an event. It tells stores and notifications apart, and sorts as
// the events do.
func messageID(storeID, notification string, event uint64) string {
	of := sha256.Sum256(fmt.Appendf(nil, "%d %s %s", len(storeID), storeID, notification))
	return fmt.Sprintf("msg_%016x_%s", event, hex.EncodeToString(of[:8]))
}

// eventNotes are what is to be known of an event beside itself. A lookup is made only where a notification needs it.
type eventNotes struct {
	isTarget func(host string) bool // the target selects the host
	details  func() map[string]any  // arguments and result
}

// selects reports whether a notification tells of an event.
func selects(n *harp.Notification, e *harp.Event, notes eventNotes) bool {
	kind := string(e.Type)
	if strings.HasPrefix(kind, "notification.") {
		return false
	}
	if !slices.ContainsFunc(n.On, func(on string) bool {
		prefix, isPrefix := strings.CutSuffix(on, "*")
		return on == kind || isPrefix && strings.HasPrefix(kind, prefix)
	}) {
		return false
	}
	like := func(patterns []string, name string) bool {
		return slices.ContainsFunc(patterns, func(p string) bool { return window.MatchGlob(p, name) })
	}
	if len(n.Procedures) > 0 && (e.Procedure == "" || !like(n.Procedures, e.Procedure)) {
		return false
	}
	if len(n.States) > 0 && !slices.Contains(n.States, e.State) {
		return false
	}
	for k, v := range n.Labels {
		if got, has := e.Labels[k]; !has || got != v {
			return false
		}
	}
	if len(n.Schedules) > 0 && (e.Schedule == "" || !like(n.Schedules, e.Schedule)) {
		return false
	}
	return n.Target == "" || e.Host != "" && notes.isTarget(e.Host)
}

// newMessage is the message that tells of an event.
func newMessage(n *harp.Notification, e *harp.Event, notes eventNotes) *messageDocument {
	var details map[string]any
	if len(n.Include) > 0 {
		details = notes.details()
	}
	return &messageDocument{
		Type: string(e.Type), Time: e.Time.UTC(), Data: eventData(e, details), Subject: subjectOf(e), Text: textOf(n, e),
	}
}

// eventData is an event as JSON, with what is to be told of its job; of what is too long it is said that it was left out.
func eventData(e *harp.Event, details map[string]any) json.RawMessage {
	plain, err := json.Marshal(e)
	if err != nil { // a queue's name that is no JSON
		without := *e
		without.Queue = nil
		plain, _ = json.Marshal(&without)
	}
	if len(plain) > harp.MaxMessageData {
		without := *e
		without.Labels, without.Queue, without.Reason = nil, nil, text.Shorten(e.Reason, maxTold, "…")
		plain, _ = json.Marshal(&without)
	}
	if len(details) == 0 {
		return plain
	}
	var all map[string]any
	if json.Unmarshal(plain, &all) != nil {
		return plain
	}
	left, leftOut := harp.MaxMessageData-len(plain)-100, []string(nil)
	for _, name := range slices.Sorted(maps.Keys(details)) {
		raw, err := json.Marshal(details[name])
		if _, isUnread := details[name].(error); isUnread || err != nil || len(raw)+len(name)+4 > left {
			leftOut = append(leftOut, name)
			continue
		}
		left -= len(raw) + len(name) + 4
		all[name] = json.RawMessage(raw)
	}
	if leftOut != nil {
		all["left_out"] = leftOut
	}
	out, err := json.Marshal(all)
	if err != nil {
		return plain
	}
	return out
}

// oneLine is a text of others in a line for people.
func oneLine(s string, most int) string { return text.Line(s, most) }

// subjectOf says in one line what happened.
func subjectOf(e *harp.Event) string {
	words := []string{string(e.Type) + ":"}
	switch {
	case e.Procedure != "" && e.Host != "":
		words = append(words, e.Procedure, "on", e.Host)
	case e.Host != "":
		words = append(words, e.Host)
	case e.Schedule != "":
		words = append(words, e.Schedule)
	case e.Window != "":
		words = append(words, e.Window)
	case e.Procedure != "":
		words = append(words, e.Procedure)
	case e.Batch != "":
		words = append(words, e.Batch)
	}
	if len(words) == 1 {
		words[0] = string(e.Type)
	}
	if e.Reason != "" {
		words = append(words, "("+oneLine(e.Reason, 200)+")")
	}
	return oneLine(strings.Join(words, " "), 300)
}

// textOf says what happened, where, and how to see more.
func textOf(n *harp.Notification, e *harp.Event) string {
	var b strings.Builder
	line := func(name, value string) {
		if value != "" {
			fmt.Fprintf(&b, "%-10s %s\n", name, oneLine(value, maxTold))
		}
	}
	line("event", string(e.Type))
	if !e.Time.IsZero() {
		line("time", e.Time.UTC().Format(time.RFC3339))
	}
	line("host", e.Host)
	line("procedure", e.Procedure)
	line("state", string(e.State))
	line("reason", e.Reason)
	if e.Attempt > 1 {
		line("attempt", fmt.Sprint(e.Attempt))
	}
	line("job", e.Job)
	line("batch", e.Batch)
	line("schedule", e.Schedule)
	line("window", e.Window)
	if !e.Until.IsZero() {
		line("until", e.Until.UTC().Format(time.RFC3339))
	}
	line("by", strings.TrimSpace(e.By.Kind+" "+e.By.Name))
	keys := slices.Sorted(maps.Keys(e.Labels))
	for _, k := range keys[:min(len(keys), maxToldLabels)] {
		line("label", k+"="+e.Labels[k])
	}
	states := slices.Sorted(maps.Keys(e.Counts))
	for _, s := range states {
		line("members", fmt.Sprintf("%d %s", e.Counts[s], s))
	}
	switch {
	case e.Job != "":
		fmt.Fprintf(&b, "\nTo see more: harp job show %s\n", e.Job)
	case e.Batch != "":
		fmt.Fprintf(&b, "\nTo see more: harp batch show %s\n", e.Batch)
	case e.Host != "":
		fmt.Fprintf(&b, "\nTo see more: harp host show %s\n", oneLine(e.Host, maxTold))
	case e.Schedule != "":
		fmt.Fprintf(&b, "\nTo see more: harp schedule show %s\n", oneLine(e.Schedule, maxTold))
	}
	fmt.Fprintf(&b, "\nTold by notification %s.\n", n.Name)
	return b.String()
}

// gathering is a digest that grows until its time.
type gathering struct {
	First  uint64         `msgpack:"first"` // the number of its first event
	Begun  time.Time      `msgpack:"begun"`
	Due    time.Time      `msgpack:"due"`
	Count  int            `msgpack:"count"`
	Counts map[string]int `msgpack:"counts"`
	Events [][]byte       `msgpack:"events"` // JSON, of the first
	Lines  []string       `msgpack:"lines"`  // for people, of the same
	Size   int            `msgpack:"size"`   // bytes of both
}

// clone returns a digest that can grow apart from this one, which may be nil.
func (g *gathering) clone() *gathering {
	if g == nil {
		return nil
	}
	c := *g
	c.Counts, c.Events, c.Lines = maps.Clone(g.Counts), slices.Clone(g.Events), slices.Clone(g.Lines)
	return &c
}

// otherTypes are those that a digest does not count apart.
const otherTypes = "other"

// add makes a message part of the digest.
func (g *gathering) add(m *messageDocument) {
	g.Count++
	kind := m.Type
	if _, known := g.Counts[kind]; !known && len(g.Counts) >= digestTypes {
		kind = otherTypes
	}
	g.Counts[kind]++
	line := m.Time.UTC().Format(time.RFC3339) + " " + m.Subject
	if size := len(m.Data) + len(line); len(g.Events) < digestEvents && g.Size+size <= digestBytes {
		g.Events, g.Lines, g.Size = append(g.Events, m.Data), append(g.Lines, line), g.Size+size
	}
}

// digestData is a digest for programs.
type digestData struct {
	Notification string            `json:"notification"`
	From         time.Time         `json:"from"`
	Count        int               `json:"count"`
	Counts       map[string]int    `json:"counts"` // by type
	Events       []json.RawMessage `json:"events"` // the first of them
}

// message is the digest as a message.
func (g *gathering) message(n *harp.Notification) *messageDocument {
	data := digestData{Notification: n.Name, From: g.Begun.UTC(), Count: g.Count, Counts: g.Counts, Events: []json.RawMessage{}}
	for _, e := range g.Events {
		data.Events = append(data.Events, e)
	}
	raw, err := json.Marshal(data)
	if err != nil {
		data.Events = []json.RawMessage{}
		raw, _ = json.Marshal(data)
	}
	var b strings.Builder
	kinds := slices.Sorted(maps.Keys(g.Counts))
	for _, kind := range kinds {
		fmt.Fprintf(&b, "%6d %s\n", g.Counts[kind], kind)
	}
	fmt.Fprintln(&b)
	for _, line := range g.Lines {
		fmt.Fprintln(&b, line)
	}
	if more := g.Count - len(g.Lines); more > 0 {
		fmt.Fprintf(&b, "and %d more: harp event ls\n", more)
	}
	fmt.Fprintf(&b, "\nTold by notification %s.\n", n.Name)
	subject := fmt.Sprintf("%d events of %s", g.Count, n.Name)
	if g.Count == 1 {
		subject = "1 event of " + n.Name
	}
	if len(kinds) == 1 {
		subject += ": " + kinds[0]
	}
	return &messageDocument{Type: digestType, Time: g.Begun.UTC(), Data: raw, Subject: subject, Text: b.String()}
}

// testMessage is what a test sends.
func testMessage(n *harp.Notification, now time.Time) *messageDocument {
	data, _ := json.Marshal(map[string]string{"notification": n.Name})
	return &messageDocument{
		Type: testType, Time: now.UTC(), Data: data, Subject: "test of notification " + n.Name,
		Text: fmt.Sprintf("This is a test of notification %s. Nothing has happened.\n", n.Name),
	}
}

// notesOf are what is known of an event beside itself. isTarget says whether a host is in the target.
func (d *Dispatcher) notesOf(ctx context.Context, n *harp.Notification, e *harp.Event, isTarget func(host string) bool) eventNotes {
	return eventNotes{
		isTarget: isTarget,
		details:  func() map[string]any { return d.jobDetails(ctx, n, e.Job) },
	}
}

// jobDetails are the arguments and the result of a job, without secrets, as a notification has them; of what cannot be read, as of a job that is
// gone, the error.
func (d *Dispatcher) jobDetails(ctx context.Context, n *harp.Notification, id string) map[string]any {
	if id == "" {
		return nil
	}
	out := map[string]any{}
	job, err := d.readJob(ctx, id)
	if err != nil {
		for _, what := range n.Include {
			out[what] = err
		}
		return out
	}
	if slices.Contains(n.Include, harp.IncludeArgs) {
		switch s, err := d.status(ctx, job); {
		case err != nil:
			out[harp.IncludeArgs] = err
		case !s.Args.IsNil():
			out[harp.IncludeArgs] = s.Args
		}
	}
	if slices.Contains(n.Include, harp.IncludeResult) && job.State.Ended() {
		if out[harp.IncludeResult], err = d.result(ctx, job); err != nil {
			out[harp.IncludeResult] = err
		}
	}
	return out
}

// errNoSender is why nothing can be sent to a receiver.
var errNoSender = errors.New("the dispatcher sends nothing to such receivers: see notifications in its configuration")

// senderFor returns the sender that accepts a receiver; nil: none does.
func (d *Dispatcher) senderFor(r harp.Receiver) notify.Sender {
	for _, s := range d.cfg.Senders {
		if s.Accepts(r) {
			return s
		}
	}
	return nil
}

// decodeMessage reads a stored message. Errors: msgpack.ErrMalformed; store.ErrDamaged for one without a type.
func decodeMessage(content []byte) (*messageDocument, error) {
	m := &messageDocument{}
	if err := wire.Decode(content, m); err != nil {
		return nil, err
	}
	if m.Type == "" {
		return nil, store.ErrDamaged
	}
	return m, nil
}
