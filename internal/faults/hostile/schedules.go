//go:build linux

package hostile

import (
	"fmt"
	"math"
	"strings"
	"sync"
	"time"
)

func aSchedule(name string, more ...any) object {
	return object{"id", newID(), "schedule", with(object{"name", name, "cron", "0 3 29 2 *", "tz", "UTC", "request", aRequest()}, more...)}
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
