//go:build linux

package hostile

import (
	"fmt"
	"math"
	"strings"
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

// tellHostChanges pauses, labels and removes hosts, most of which are not there.
func tellHostChanges(t *teller) error {
	return t.greeted(t.many(2, 8), func(p *peer) error {
		for i := range t.many(20, 400) {
			name := newName("nowhere")
			for kind, m := range map[byte]object{
				typePauseHosts: {"id", newID(), "target", name, "reason", strings.Repeat("r", 1000)}, typeLabelHosts: {"id", newID(), "target", name, "set", object{"a", fmt.Sprint(i)}},
				typeRemoveHost: {"id", newID(), "name", name}, typeForgetDrift: {"id", newID(), "name", name},
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
