//go:build linux

package hostile

import (
	"bytes"
	"fmt"
	"math"
	"strings"
	"sync"
	"time"
	"unicode/utf8"
)

// liesOfDocuments are told by callers, about what stays: groups, windows, schedules, notifications and rules of retention.
var liesOfDocuments = toDispatcher(caller, []lie{
	{name: "documents without end", tell: tellManyDocuments},
	{name: "the same documents again and again", tell: tellSameDocuments},
	{name: "documents with names that a terminal would obey", tell: tellDocumentNames},
	{name: "documents with keys in other cases, and twice", tell: tellDocumentKeys},
	{name: "documents with both ends of every range", tell: tellDocumentRanges},
	{name: "documents with lists and texts that are too long", tell: tellLongDocuments},
	{name: "calendars that are bombs", tell: tellCalendars},
	{name: "crons that hardly ever fire", tell: tellCrons},
	{name: "schedules that come after one another", tell: tellCircles},
	{name: "patterns of documents that are bombs", tell: tellPatterns},
	{name: "targets of documents that are bombs", tell: tellTargets},
	{name: "notifications to where nobody may be told", tell: tellReceivers},
	{name: "sets of documents without end", tell: tellSets},
	{name: "listings of documents that nobody reads", tell: tellUnreadListings},
	{name: "listings of documents out of range", tell: tellListingRanges},
	{name: "runs of schedules without end", tell: tellRuns},
	{name: "pauses and labels of hosts without end", tell: tellHostChanges},
})

// document is a kind of them: how one is put, deleted and listed.
type document struct {
	put, remove, list byte
	message           func(name string, more ...any) object // of PUT
}

// with is an object with more fields, or the same ones with other values.
func with(o object, more ...any) object {
	for i := 0; i < len(more); i += 2 {
		found := false
		for k := 0; k < len(o); k += 2 {
			if o[k] == more[i] {
				o[k+1], found = more[i+1], true
			}
		}
		if !found {
			o = append(o, more[i], more[i+1])
		}
	}
	return o
}

func aGroup(name string, more ...any) object {
	return with(object{"id", newID(), "name", name, "target", "called"}, more...)
}

// aWindow is open in a hundred years: nothing that is honest waits for it.
func aWindow(name string, more ...any) object {
	from := time.Now().AddDate(100, 0, 0)
	return object{"id", newID(), "window", with(object{"name", name, "target", "nobody", "from", from.UnixNano(), "to", from.Add(time.Hour).UnixNano()}, more...)}
}

// aRequest is that of a schedule, to a host that there is not.
func aRequest(more ...any) object {
	return with(object{"v", 1, "id", "", "target", "nobody", "proc", "work", "args", user(object{}), "needs", list{"batch"}}, more...)
}

func aSchedule(name string, more ...any) object {
	return object{"id", newID(), "schedule", with(object{"name", name, "cron", "0 3 29 2 *", "tz", "UTC", "request", aRequest()}, more...)}
}

// aNotification is to a host whose name cannot be one, so that nobody is asked where it is.
func aNotification(name string, more ...any) object {
	to := object{"webhook", object{"url", "https://example-.invalid/x", "secrets", list{"key"}}}
	return object{"id", newID(), "notification", with(object{"name", name, "on", list{"job.failed"}, "to", to}, more...)}
}

func aRule(name string, more ...any) object {
	return object{"id", newID(), "rule", with(object{"name", name, "keep", int64(time.Hour), "proc", "nothing"}, more...)}
}

var documents = []document{
	{typePutGroup, typeDeleteGroup, typeGroups, aGroup},
	{typePutWindow, typeDeleteWindow, typeWindows, aWindow},
	{typePutSchedule, typeDeleteSchedule, typeSchedules, aSchedule},
	{typePutNotification, typeDeleteNotification, typeNotifications, aNotification},
	{typeSetRetention, typeDeleteRetention, typeRetentionRules, aRule},
}

// lieName is the name of a document of liars, which are deleted when the lie is over.
func lieName() string { return newName("lie-") }

// callerNamed is a session of a caller with another name.
func (t *teller) callerNamed(name string) (*peer, error) {
	p, err := t.sessionAs(caller, name, nil)
	if err != nil {
		return nil, err
	}
	if err := p.say(0, typeHello, 0, hello()); err != nil {
		return nil, err
	}
	_, err = p.expect(typeWelcome)
	return p, err
}

// asker asks in a session, and in another one when that was ended: what is malformed ends it.
type asker struct {
	t *teller
	p *peer
}

// ask returns no frame when the session was ended instead of an answer.
func (a *asker) ask(kind byte, message any) (f frame, err error) {
	if a.p == nil {
		if a.p, err = a.t.callerSession(); err != nil {
			return f, err
		}
	}
	f, err = a.p.ask(kind, message)
	if err == nil {
		return f, nil
	}
	select {
	case <-a.p.over:
		a.p = nil
		return frame{}, nil
	case <-a.t.ctx.Done():
	case <-time.After(time.Second): // it cannot be written to, and is not read to its end
	}
	return f, err
}

// refused fails unless a request is refused as invalid, or for its form.
func (a *asker) refused(kind byte, message any) error {
	f, err := a.ask(kind, message)
	if code := codeOf(f); err == nil && f.kind != 0 && code != "invalid" {
		err = fmt.Errorf("request %d is answered by frame %d, %q: %.200q", kind, f.kind, code, f.body)
	}
	return err
}

// asking does something in sessions that are opened anew when they were ended.
func (t *teller) asking(n int, do func(a *asker) error) error {
	return t.each(n, func(int) error { return do(&asker{t: t}) })
}

// taken fails unless a request is answered.
func (p *peer) taken(kind byte, message any) error {
	f, err := p.ask(kind, message)
	if err == nil && f.kind != typeReply {
		err = fmt.Errorf("request %d is refused: %.300q", kind, f.body)
	}
	return err
}

// isAnswered sends requests at once, and waits until the last of them is answered.
func (p *peer) isAnswered(kind byte, messages ...object) error {
	var b []byte
	for _, m := range messages {
		b = append(b, frameBytes(p.nextExchange(), kind, endFlag, encode(m))...)
	}
	if err := p.sayBytes(b); err != nil {
		return err
	}
	_, err := p.ask(typePing, object{})
	return err
}

// tellManyDocuments puts as many as there may be. Another caller must find room for one of each.
func tellManyDocuments(t *teller) error {
	for i, d := range documents {
		n := []int{1100, 1100, 2000, 220, 110}[i]
		if t.long && d.put == typePutSchedule {
			n = 11_000
		}
		err := t.greeted(8, func(p *peer) error {
			for range n / 8 {
				if _, err := p.ask(d.put, d.message(lieName())); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		p, err := t.callerNamed("other")
		if err != nil {
			return err
		}
		if err := p.taken(d.put, d.message(lieName())); err != nil {
			return fmt.Errorf("beside many: %w", err)
		}
		p.close()
	}
	return t.canListDocuments()
}

// canListDocuments fails unless all can be listed.
func (t *teller) canListDocuments() error {
	p, err := t.callerSession()
	if err != nil {
		return err
	}
	defer p.close()
	for _, d := range documents {
		if err := p.taken(d.list, object{}); err != nil {
			return err
		}
	}
	return p.taken(typeBatches, object{})
}

func tellSameDocuments(t *teller) error {
	long := strings.Repeat("x", 1000)
	return t.asking(t.many(2, 16), func(p *asker) error {
		for i := range t.many(20, 400) {
			d := documents[i%len(documents)]
			name := fmt.Sprint("lie-same", i%7)
			more := []any{"doc", fmt.Sprint(long, i)}
			if d.put == typePutGroup {
				more = []any{"target", strings.Repeat(fmt.Sprint("h", i, ","), 20000) + "called"}
			}
			if _, err := p.ask(d.put, d.message(name, more...)); err != nil {
				return err
			}
			if i%3 == 0 {
				if _, err := p.ask(d.remove, object{"id", newID(), "name", name}); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

func tellDocumentNames(t *teller) error {
	p := &asker{t: t}
	for _, text := range append(obeyed, "", strings.Repeat("x", 200), "\xff", "a\u200eb", "\ufeffa", "a\u2066b") {
		for _, d := range documents {
			if err := p.refused(d.put, d.message(text)); err != nil {
				return fmt.Errorf("name %q: %w", text, err)
			}
		}
		if err := p.refused(typeApply, object{"id", newID(), "managed", text, "documents", list{}}); err != nil {
			return fmt.Errorf("managed by %q: %w", text, err)
		}
		if err := p.refused(typeSubmit, submission(aBatch(newID(), "batch", object{"drift", text, "parallel", 1}))); err != nil && text != "" {
			return fmt.Errorf("drift under %q: %w", text, err)
		}
		for kind, m := range map[byte]object{
			typeTrigger: {"id", newID(), "name", text}, typeNextTimes: {"name", text, "n", 3}, typeEndWindow: {"id", newID(), "name", text},
			typeJudgeStart: {"host", text, "proc", text}, typeForgetDrift: {"id", newID(), "name", text},
			typeChangeNotification: {"id", newID(), "name", text, "kind", "retry"},
			typeChangeSchedule:     {"id", newID(), "name", text, "kind", text}, typeLedger: {"schedule", text, "outcomes", list{text}},
		} {
			f, err := p.ask(kind, m)
			if err == nil && f.kind == 0 && !utf8.ValidString(text) {
				continue // what is no text ends the session
			}
			if err != nil || f.kind != typeFailed && kind != typeLedger && kind != typeForgetDrift {
				return fmt.Errorf("request %d about %q is answered by frame %d, %w", kind, text, f.kind, err)
			}
		}
	}
	return t.canListDocuments()
}

func tellDocumentKeys(t *teller) error {
	p := &asker{t: t}
	name := lieName()
	window := aWindow(name)[3].(object)
	sched := aSchedule(name)[3].(object)
	for _, m := range []struct {
		kind    byte
		message any
	}{
		{typePutGroup, object{"id", newID(), "NAME", name, "target", "called"}},
		{typePutGroup, object{"id", newID(), "name", name, "name", name, "target", "called"}},
		{typePutGroup, list{newID(), name, "called"}},
		{typePutWindow, object{"id", newID(), "WINDOW", window}},
		{typePutWindow, object{"id", newID(), "window", append(object{"name", "other"}, window...)}},
		{typePutWindow, object{"id", newID(), "window", encode(window)}},
		{typePutWindow, object{"id", newID(), "window", nil}},
		{typePutWindow, object{"id", newID(), "window", list{window}}},
		{typePutSchedule, object{"id", newID(), "schedule", append(object{"cron", "* * * * *"}, sched...)}},
		{typePutSchedule, aSchedule(name, "request", user(object{}))},
		{typePutSchedule, aSchedule(name, "request", append(aRequest(), "proc", "again"))},
		{typePutSchedule, aSchedule(name, "request", aRequest("args", object{}))},
		{typePutSchedule, aSchedule(name, "request", aRequest("args", user(object{"a", 1, "a", 2})))},
		{typePutSchedule, aSchedule(name, "labels", object{"a", "1", "a", "2"})},
		{typePutNotification, aNotification(name, "to", object{"WEBHOOK", object{}})},
		{typePutNotification, aNotification(name, "to", object{"webhook", object{"url", "https://x.invalid/", "url", "https://y.invalid/", "secrets", list{"key"}}})},
		{typeSetRetention, aRule(name, "states", object{})},
		{typeSetRetention, object{"id", newID(), "rule", append(object{"name", name}, aRule(name)[3].(object)...)}},
		{typeApply, object{"id", newID(), "managed", "m", "documents", list{encode(object{"GROUP", object{"name", name, "target", "called"}})}}},
		{typeApply, object{"id", newID(), "managed", "m", "documents", list{encode(object{"group", object{"name", name, "target", "called"}, "window", window})}}},
		{typeApply, object{"id", newID(), "managed", "m", "documents", list{encode(object{"group", object{"name", name, "target", "called"}, "group", object{"name", name, "target", "idle"}})}}},
		{typeApply, object{"id", newID(), "managed", "m", "documents", list{encode(object{}), encode(nil), encode(list{})}}},
		{typeApply, object{"id", newID(), "managed", "m", "documents", object{}}},
	} {
		if err := p.refused(m.kind, m.message); err != nil {
			return fmt.Errorf("%.200v: %w", m.message, err)
		}
	}
	for _, id := range noIDs {
		for _, d := range documents {
			if err := p.refused(d.put, with(d.message(name), "id", id)); err != nil {
				return err
			}
		}
	}
	return nil
}

// ends are both ends of what a number may be.
var ends = []any{int64(math.MinInt64), int64(math.MinInt64 + 1), -1, int64(math.MaxInt64), int64(math.MaxInt64 - 1), encoded{0xcf, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, 1e300, math.NaN(), "1", true}

// tellDocumentRanges puts documents with both ends of every number, and asks what would be then.
func tellDocumentRanges(t *teller) error {
	fields := map[int][]string{
		1: {"from", "to", "for"},
		2: {"from", "until", "jitter", "catchup", "catchupmost", "pausefail", "expect"},
		3: {"for", "digest"},
		4: {"order", "keep", "bytes"},
	}
	return t.asking(t.many(1, 4), func(p *asker) error {
		for i, names := range fields {
			d := documents[i]
			for _, field := range names {
				for _, v := range ends {
					name := lieName()
					more := []any{field, v}
					if i == 1 && field == "for" {
						more = append(more, "from", 0, "to", 0, "cron", "0 3 29 2 *")
					}
					if _, err := p.ask(d.put, d.message(name, more...)); err != nil {
						return fmt.Errorf("%s %v: %w", field, v, err)
					}
					if err := p.askAfter(name, v); err != nil {
						return fmt.Errorf("%s %v: %w", field, v, err)
					}
					if _, err := p.ask(d.remove, object{"id", newID(), "name", name}); err != nil {
						return err
					}
				}
			}
		}
		return t.canListDocuments()
	})
}

// askAfter asks after a document, with numbers out of range.
func (a *asker) askAfter(name string, v any) error {
	for kind, m := range map[byte]object{
		typeWindowSpans: {"name", name, "from", v, "to", int64(math.MaxInt64)}, typeNextTimes: {"name", name, "from", v, "n", 1000},
		typeBackfill: {"id", newID(), "name", name, "from", v, "to", time.Now().UnixNano()}, typeLedger: {"schedule", name, "from", v, "to", v, "limit", v},
		typeChangeSchedule: {"id", newID(), "name", name, "kind", "pause", "until", v, "at", v}, typeJudgeStart: {"host", "called", "proc", "work", "at", v},
		typePauseHosts: {"id", newID(), "target", "nobody", "until", v}, typeEvents: {"since", v, "after", "x"},
	} {
		if _, err := a.ask(kind, m); err != nil {
			return fmt.Errorf("request %d: %w", kind, err)
		}
	}
	_, err := a.ask(typeChangeSchedule, object{"id", newID(), "name", name, "kind", "skip", "at", v})
	return err
}

// tellLongDocuments fills fields to the brim, and beyond.
func tellLongDocuments(t *teller) error {
	p := &asker{t: t}
	long := strings.Repeat("x", 60000)
	var many, longest list
	var labels object
	for i := range 1000 {
		many, labels = append(many, fmt.Sprint("job.x", i)), append(labels, fmt.Sprint("k", i), "v")
	}
	for range 65 {
		longest = append(longest, strings.Repeat("*a", 64))
	}
	for _, m := range []struct {
		kind    byte
		message object
	}{
		{typePutWindow, aWindow("lie", "doc", long)},
		{typePutWindow, aWindow("lie", "reason", long)},
		{typePutWindow, aWindow("lie", "tz", long)},
		{typePutWindow, aWindow("lie", "tz", "../../../etc/passwd")},
		{typePutWindow, aWindow("lie", "tz", "Europe/Madrid\x00")},
		{typePutWindow, aWindow("lie", "from", 0, "to", 0, "for", int64(time.Hour), "cron", strings.Repeat("1,", 20000)+" * * * *")},
		{typePutWindow, aWindow("lie", "procs", many)},
		{typePutWindow, aWindow("lie", "exempt", longest)},
		{typePutWindow, aWindow("lie", "target", long)},
		{typePutWindow, aWindow("lie", "mode", long)},
		{typePutSchedule, aSchedule("lie", "doc", long)},
		{typePutSchedule, aSchedule("lie", "cron", long)},
		{typePutSchedule, aSchedule("lie", "labels", labels)},
		{typePutSchedule, aSchedule("lie", "tz", long)},
		{typePutSchedule, aSchedule("lie", "gap", long)},
		{typePutSchedule, aSchedule("lie", "overlap", obeyed[1])},
		{typePutSchedule, aSchedule("lie", "request", aRequest("labels", labels))},
		{typePutSchedule, aSchedule("lie", "request", aRequest("args", user(strings.Repeat("x", 50000))))},
		{typePutSchedule, aSchedule("lie", "request", aRequest("batch", object{"rolling", many}))},
		{typePutSchedule, aSchedule("lie", "request", aRequest("batch", object{"then", manySteps(40)}))},
		{typePutNotification, aNotification("lie", "on", many)},
		{typePutNotification, aNotification("lie", "procs", longest)},
		{typePutNotification, aNotification("lie", "states", append(list{}, many...))},
		{typePutNotification, aNotification("lie", "include", many)},
		{typePutNotification, aNotification("lie", "labels", labels)},
		{typeSetRetention, aRule("lie", "proc", long)},
		{typeSetRetention, aRule("lie", "states", manyStates(4000))},
		{typeSetRetention, aRule("lie", "labels", labels)},
		{typeChangeNotification, object{"id", newID(), "name", "lie", "kind", "pause", "reason", long}},
		{typeChangeBatch, object{"id", newID(), "batch", newID(), "kind", "pause", "reason", long}},
		{typePauseHosts, object{"id", newID(), "target", "called", "reason", long}},
		{typeLabelHosts, object{"id", newID(), "target", "called", "set", labels}},
		{typeLabelHosts, object{"id", newID(), "target", "called", "unset", many}},
		{typeResults, object{"ids", list{}}},
	} {
		if err := p.refused(m.kind, m.message); err != nil {
			return fmt.Errorf("%.200v: %w", m.message, err)
		}
	}
	// Of states and of what is included there are few: each is once, however often it is said.
	for _, m := range []object{
		aNotification(lieName(), "states", manyStates(4000)),
		aNotification(lieName(), "include", manyOf("args", 4000)),
	} {
		if _, err := p.ask(typePutNotification, m); err != nil {
			return err
		}
	}
	return t.canListDocuments()
}

func manyOf(text string, n int) (all list) {
	for range n {
		all = append(all, text)
	}
	return all
}

func manyStates(n int) list { return manyOf("failed", n) }

func manySteps(n int) (all list) {
	for range n {
		all = append(all, object{"proc", "work"})
	}
	return all
}

// calendar is a file with an event that has more lines.
func calendar(lines ...string) []byte {
	return []byte("BEGIN:VCALENDAR\r\nVERSION:2.0\r\nBEGIN:VEVENT\r\nUID:x\r\nDTSTART:20200101T000000Z\r\nDURATION:PT1H\r\n" +
		strings.Join(lines, "\r\n") + "\r\nEND:VEVENT\r\nEND:VCALENDAR\r\n")
}

// tellCalendars puts files that take long to read, or to say when they are.
func tellCalendars(t *teller) error {
	const size = 700 << 10
	var dates []string
	for len(dates)*17 < size {
		dates = append(dates, fmt.Sprintf("%04d%02d%02dT%02d%02d00Z", 2000+len(dates)%100, 1+len(dates)%12, 1+len(dates)%28, len(dates)%24, len(dates)%60))
	}
	files := [][]byte{
		calendar("RRULE:FREQ=SECONDLY"),
		calendar("RRULE:FREQ=SECONDLY;BYMONTH=2;BYMONTHDAY=30"),
		calendar("RRULE:FREQ=MINUTELY;BYMONTH=2;BYMONTHDAY=30;BYHOUR=3"),
		calendar("RRULE:FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=30"),
		calendar("RRULE:FREQ=YEARLY;BYWEEKNO=53;BYYEARDAY=1,-1;BYDAY=MO"),
		calendar("RRULE:FREQ=DAILY;INTERVAL=9999999;COUNT=9999999"),
		calendar("RRULE:FREQ=DAILY;INTERVAL=0"),
		calendar("RRULE:FREQ=DAILY;COUNT=99999999999999999999"),
		calendar("RRULE:FREQ=YEARLY;BYDAY=" + strings.Repeat("1MO,", 10000) + "2TU"),
		calendar("RDATE:" + strings.Join(dates, ",")),
		calendar("RRULE:FREQ=DAILY\r\nEXDATE:" + strings.Join(dates, ",")),
		calendar(strings.Repeat("X-A:"+strings.Repeat("y", 60)+"\r\n", size/70)),
		calendar(strings.Repeat("BEGIN:VALARM\r\n", size/20)),
		calendar("SUMMARY:" + strings.Repeat("\\n\\,", size/5)),
		calendar("SUMMARY:x\r\n " + strings.Repeat("y\r\n ", size/5)),
		[]byte("BEGIN:VCALENDAR\r\n" + strings.Repeat("BEGIN:VEVENT\r\nDTSTART:20200101T000000Z\r\nRRULE:FREQ=DAILY\r\nEND:VEVENT\r\n", size/70) + "END:VCALENDAR\r\n"),
		[]byte("BEGIN:VCALENDAR\r\n" + strings.Repeat("BEGIN:VTIMEZONE\r\nTZID:x\r\nEND:VTIMEZONE\r\n", size/45) + "END:VCALENDAR\r\n"),
		bytes.Repeat([]byte{'\n'}, size), bytes.Repeat([]byte("BEGIN:VCALENDAR\n"), size/16), bytes.Repeat([]byte{0xff}, size), []byte(strings.Repeat("x", 768<<10)),
	}
	return t.asking(t.many(2, 8), func(p *asker) error {
		for i, content := range files {
			name := lieName()
			event := ""
			if i%2 == 0 {
				event = strings.Repeat("*a", 30)
			}
			if _, err := p.ask(typePutWindow, aWindow(name, "from", 0, "to", 0, "cal", object{"content", content, "event", event})); err != nil {
				return fmt.Errorf("calendar %d: %w", i, err)
			}
			now := time.Now()
			for range 3 {
				if _, err := p.ask(typeWindowSpans, object{"name", name, "from", now.UnixNano(), "to", now.AddDate(2, 0, 0).UnixNano()}); err != nil {
					return err
				}
			}
			if _, err := p.ask(typeWindows, object{"limit", 100}); err != nil {
				return err
			}
			if _, err := p.ask(typeWindows, object{"name", name}); err != nil {
				return err
			}
			if _, err := p.ask(typeDeleteWindow, object{"id", newID(), "name", name}); err != nil {
				return err
			}
		}
		return nil
	})
}

// tellCrons asks for times of what hardly ever fires, or always does.
func tellCrons(t *teller) error {
	crons := []string{
		"0 0 30 2 *", "0 0 29 2 1", "59 23 31 12 *", "* * * * *", "every 1s", "every 1ns", "every 2562047h", "at 9999-12-31 23:59", "at 0001-01-01 00:00",
		"0 0 29 2 *", "0 0 31 2,4,6,9,11 *", "0 0 * * 7#5", "0 0 L * *", "0 0 15W * *", "*/1 */1 */1 */1 */1", "@reboot", "* * * * * *", "60 * * * *", "0 0 1-31/31 2 *",
		strings.Repeat("0-59,", 150) + "0 * * * *", "0 0 29 2 sun", "0 0-23/0 * * *", "0 0 99999999999999999999 * *",
	}
	zones := []string{"UTC", "America/New_York", "Antarctica/Troll", "Pacific/Apia", "Local", "", "Factory"}
	return t.greeted(t.many(2, 16), func(p *peer) error {
		for i := range t.many(len(crons), 4*len(crons)) {
			name := lieName()
			m := aSchedule(name, "cron", crons[i%len(crons)], "tz", zones[i%len(zones)], "jitter", int64(i)*int64(time.Hour))
			if _, err := p.ask(typePutSchedule, m); err != nil {
				return fmt.Errorf("cron %q: %w", crons[i%len(crons)], err)
			}
			var asks []object
			for n := range t.many(3, 50) {
				asks = append(asks, object{"name", name, "n", 1000, "from", time.Now().AddDate(n, 0, 0).UnixNano()})
			}
			if err := p.isAnswered(typeNextTimes, asks...); err != nil {
				return err
			}
			now := time.Now()
			if _, err := p.ask(typeBackfill, object{"id", newID(), "name", name, "from", now.AddDate(-200, 0, 0).UnixNano(), "to", now.UnixNano()}); err != nil {
				return err
			}
			if _, err := p.ask(typePutWindow, aWindow(name, "from", 0, "to", 0, "cron", crons[i%len(crons)], "for", int64(math.MaxInt64))); err != nil {
				return err
			}
			if _, err := p.ask(typeWindowSpans, object{"name", name, "from", now.UnixNano(), "to", now.AddDate(2, 0, 0).UnixNano()}); err != nil {
				return err
			}
			for kind := range map[byte]bool{typeDeleteSchedule: true, typeDeleteWindow: true} {
				if _, err := p.ask(kind, object{"id", newID(), "name", name}); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// tellCircles makes schedules come after themselves, after each other, and in long chains.
func tellCircles(t *teller) error {
	p, err := t.callerSession()
	if err != nil {
		return err
	}
	after := func(names ...string) object {
		var all list
		for _, n := range names {
			all = append(all, object{"schedule", n})
		}
		return object{"id", newID(), "schedule", object{"name", names[0], "after", all[1:], "request", aRequest()}}
	}
	a, b := lieName(), lieName()
	if err := p.taken(typePutSchedule, aSchedule(a)); err != nil {
		return err
	}
	if err := p.taken(typePutSchedule, after(b, a)); err != nil {
		return err
	}
	for _, m := range []object{after(a, b), after(b, b), after(b, a, a), after(b, "there is none")} {
		if f, err := p.ask(typePutSchedule, m); err != nil || f.kind != typeFailed {
			return fmt.Errorf("%v is taken: %w", m, err)
		}
	}
	last := b
	for range t.many(30, 500) {
		next := lieName()
		if f, err := p.ask(typePutSchedule, after(next, last, a)); err != nil || f.kind == typeFailed {
			if err != nil {
				return err
			}
			break // there is an end of how many come after one another
		}
		last = next
	}
	for _, name := range []string{a, b} {
		if _, err := p.ask(typeDeleteSchedule, object{"id", newID(), "name", name}); err != nil {
			return err
		}
	}
	_, err = p.ask(typeTrigger, object{"id", newID(), "name", a})
	return err
}

// tellPatterns puts patterns that take long to match, which everybody's calls are matched with.
func tellPatterns(t *teller) error {
	bomb := strings.Repeat("*a", 63) + "b"
	var many list
	for range 64 {
		many = append(many, bomb)
	}
	p, err := t.callerSession()
	if err != nil {
		return err
	}
	for range t.many(50, 90) {
		if _, err := p.ask(typeSetRetention, aRule(lieName(), "proc", bomb, "schedule", bomb, "order", math.MinInt32, "keep", int64(math.MaxInt64))); err != nil {
			return err
		}
		if _, err := p.ask(typePutWindow, aWindow(lieName(), "target", "called", "procs", many, "exempt", many)); err != nil {
			return err
		}
		if _, err := p.ask(typePutNotification, aNotification(lieName(), "on", list{"*"}, "procs", many, "schedules", many)); err != nil {
			return err
		}
	}
	id := newID()
	if _, err := p.ask(typeSubmit, submission(request(id, t.called, "work", object{}))); err != nil {
		return err
	}
	_, err = p.ask(typeResult, object{"id", id, "wait", true})
	return err
}

// tellTargets puts targets that take long to read and to match.
func tellTargets(t *teller) error {
	deep := strings.Repeat("(", 1000) + "called" + strings.Repeat(")", 1000)
	names := strings.Repeat("host,", 100_000) + "called"
	regexps := strings.Repeat("~(a{1,50}){1,10}b or ", 180) + "called"
	group := lieName()
	targets := []string{
		deep, names, regexps, "~" + strings.Repeat("(a|", 500) + "b" + strings.Repeat(")", 500), strings.Repeat("not ", 1000) + "called",
		"web[1-999999999]", "web[0001-9999],db[1-9999999999999999999999]", strings.Repeat("*a", 2000), "@" + group, "a=~" + strings.Repeat("(x+x+)+", 50) + "y", "\x1b[2J", "fact." + strings.Repeat("a.", 1000) + "b=1",
		strings.Repeat("role=web and ", 5000) + "called",
	}
	return t.asking(t.many(2, 16), func(p *asker) error {
		for i, text := range targets {
			for kind, m := range map[byte]object{
				typePutGroup: aGroup(group+fmt.Sprint(i), "target", text), typePutWindow: aWindow(group+fmt.Sprint(i), "target", text), typePutSchedule: aSchedule(group+fmt.Sprint(i), "request", aRequest("target", text)),
				typePutNotification: aNotification(group+fmt.Sprint(i), "target", text), typePreview: {"req", aBatch(newID(), "target", text)},
				typeExplain: {"target", text, "host", "called"}, typeHosts: {"target", text}, typePingHosts: {"target", text, "limit", 1}, typeDrift: {"target", text},
				typePauseHosts: {"id", newID(), "target", text, "unpause", true}, typeLabelHosts: {"id", newID(), "target", text, "unset", list{"lie"}},
			} {
				if _, err := p.ask(kind, m); err != nil {
					return fmt.Errorf("request %d with target %d: %w", kind, i, err)
				}
			}
		}
		return nil
	})
}

// tellReceivers names places that no message may go to, and files that are no secrets.
func tellReceivers(t *teller) error {
	p := &asker{t: t}
	for _, to := range []any{
		object{},
		nil,
		object{"webhook", object{}},
		object{"mail", object{"to", list{}}},
		webhook("file:///etc/passwd"), webhook("gopher://x.invalid/"), webhook("https://"), webhook("https://a:b@x.invalid/"), webhook("https://x.invalid/#f"),
		webhook("https://169.254.169.254/latest/meta-data"), webhook("https://[::1]/"),
		webhook("https://[::ffff:127.0.0.1]/"), webhook("https://10.0.0.1/"), webhook("https://x.invalid:0/"), webhook("https://x.invalid:99999/"), webhook("https://x.invalid/\r\nX: y"),
		webhook("https://x.invalid/" + strings.Repeat("x", 4000)), webhook("https://x\u202e.invalid/\x00"),
		webhook("https://x.invalid/", ""), webhook("https://x.invalid/", "../ca/ca.key"), webhook("https://x.invalid/", "/etc/passwd"), webhook("https://x.invalid/", "a\x00b"), webhook("https://x.invalid/", "."), webhook("https://x.invalid/", strings.Repeat("x", 300)),
		object{"webhook", object{"url", "https://x.invalid/", "secrets", manyOf("key", 1000)}},
		object{"mail", object{"to", list{"a@b\r\nBcc: c@d"}}},
		object{"mail", object{"to", manyOf("a@x.invalid", 1000)}},
		object{"mail", object{"to", list{strings.Repeat("a", 300) + "@x.invalid"}}},
		object{"webhook", object{"url", "https://x.invalid/", "secrets", list{"key"}}, "mail", object{"to", list{"a@x.invalid"}}},
	} {
		if err := p.refused(typePutNotification, aNotification(lieName(), "to", to)); err != nil {
			return fmt.Errorf("%.200v: %w", to, err)
		}
	}
	return nil
}

func webhook(url string, secret ...string) object {
	secrets := list{"key"}
	if len(secret) > 0 {
		secrets = list{secret[0]}
	}
	return object{"webhook", object{"url", url, "secrets", secrets}}
}

// tellSets applies sets of documents, most of which are only looked at.
func tellSets(t *teller) error {
	set := func(n int, target string) (all list) {
		for i := range n {
			name := fmt.Sprint("lie-set", i)
			all = append(all, encode(object{"group", object{"name", name, "target", target}}), encode(object{"window", aWindow(name, "target", "@"+name)[3]}),
				encode(object{"schedule", aSchedule(name, "request", aRequest("target", "@"+name))[3]}))
		}
		return all
	}
	return t.asking(t.many(2, 8), func(p *asker) error {
		for i := range t.many(4, 60) {
			m := object{"managed", fmt.Sprint("liar", i%3), "documents", set(330, "called"), "dry", true, "prune", true}
			switch i % 4 {
			case 1:
				m = with(m, "documents", set(2000, "x"))
			case 2:
				m = with(m, "documents", set(3, strings.Repeat("h,", 200_000)+"called"))
			case 3:
				m = object{"id", newID(), "managed", "liar", "documents", set(5, fmt.Sprint("called,x", i)), "prune", true}
			}
			if _, err := p.ask(typeApply, m); err != nil {
				return err
			}
		}
		_, err := p.ask(typeApply, object{"id", newID(), "managed", "liar", "documents", list{}, "prune", true})
		return err
	})
}

// tellUnreadListings asks for listings, and reads none.
func tellUnreadListings(t *teller) error {
	doc := strings.Repeat("d", 1000)
	filler, err := t.callerSession()
	if err != nil {
		return err
	}
	for i := range t.many(100, 400) {
		d := documents[1+i%2]
		if _, err := filler.ask(d.put, d.message(lieName(), "doc", doc)); err != nil {
			return err
		}
	}
	kinds := []byte{
		typeGroups, typeWindows, typeSchedules, typeNotifications, typeRetentionRules, typeLedger, typeBatches, typeDrift, typeQueues, typeEvents, typeHosts, typePingHosts,
	}
	err = t.greeted(t.many(4, 16), func(p *peer) error {
		p.stopListening()
		var b []byte
		for i := range 3000 {
			b = append(b, frameBytes(p.nextExchange(), kinds[i%len(kinds)], endFlag, encode(object{"limit", 4000}))...)
		}
		t.work.Go(func() { _ = p.sayBytes(b) })
		return nil
	})
	if err != nil {
		return err
	}
	return t.hold()
}

// tellListingRanges asks for pages that there are not.
func tellListingRanges(t *teller) error {
	p := &asker{t: t}
	kinds := []byte{typeGroups, typeWindows, typeSchedules, typeNotifications, typeLedger, typeBatches, typeDrift, typeQueues, typeHosts}
	for _, kind := range kinds {
		for _, v := range ends {
			if _, err := p.ask(kind, object{"limit", v}); err != nil {
				return fmt.Errorf("request %d limit %v: %w", kind, v, err)
			}
		}
		for _, cursor := range []string{
			"x", "within.", "within.AAAA", "within." + strings.Repeat("k", 50000), strings.Repeat("z", 60000), "\x00", "\xff", "../../x", obeyed[1],
			"within.gqFrpXh4eHh4oWOlYWFhYWE", "within.g6FroXihY6F4oXTTf_________8",
		} {
			if _, err := p.ask(kind, object{"cursor", cursor}); err != nil {
				return fmt.Errorf("request %d cursor %.30q: %w", kind, cursor, err)
			}
		}
		for _, name := range obeyed {
			if _, err := p.ask(kind, object{"name", name, "schedule", name, "proc", name, "states", list{name}}); err != nil {
				return err
			}
		}
	}
	return nil
}

// tellRuns has a schedule of another caller run without end.
func tellRuns(t *teller) error {
	owner, err := t.callerNamed("other")
	if err != nil {
		return err
	}
	name := lieName()
	if err := owner.taken(typePutSchedule, aSchedule(name, "overlap", "allow", "request", aRequest("target", "called", "notbefore", 0))); err != nil {
		return err
	}
	var once sync.Once
	var first error
	err = t.greeted(t.many(2, 8), func(p *peer) error {
		var all []object
		for range t.many(50, 1000) {
			all = append(all, object{"id", newID(), "name", name, "running", true, "paused", true})
		}
		once.Do(func() { first = p.taken(typeTrigger, object{"id", newID(), "name", name, "running", true}) })
		return p.isAnswered(typeTrigger, all...)
	})
	if first != nil {
		return first
	}
	return err
}

// tellHostChanges pauses, labels and removes hosts, most of which are not there.
func tellHostChanges(t *teller) error {
	return t.greeted(t.many(2, 8), func(p *peer) error {
		for i := range t.many(20, 400) {
			name := newName("nowhere")
			for kind, m := range map[byte]object{
				typePauseHosts: {"id", newID(), "target", name, "reason", strings.Repeat("r", 1000)}, typeLabelHosts: {"id", newID(), "target", name, "set", object{"a", fmt.Sprint(i)}},
				92: {"id", newID(), "name", name}, typeForgetDrift: {"id", newID(), "name", name},
			} {
				if _, err := p.ask(kind, m); err != nil {
					return err
				}
			}
			for _, m := range []object{
				{"id", newID(), "target", t.called, "until", time.Now().Add(time.Millisecond).UnixNano(), "reason", "a lie"}, // it may be over already
				{"id", newID(), "target", t.called, "unpause", true},
			} {
				if _, err := p.ask(typePauseHosts, m); err != nil {
					return err
				}
			}
			if err := p.taken(typeLabelHosts, object{"id", newID(), "target", t.called, "set", object{"lie", fmt.Sprint(i)}}); err != nil {
				return err
			}
		}
		return p.taken(typeLabelHosts, object{"id", newID(), "target", t.called, "unset", list{"lie"}})
	})
}
