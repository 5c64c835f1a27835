//go:build linux

package hostile

import (
	"fmt"
	"strings"
	"sync"
	"time"
)

// liesOfTimes are told by callers, about when something is to be.
var liesOfTimes = toDispatcher(caller, []lie{
	{name: "crons whose lists are long", tell: tellLongCrons},
	{name: "calendars whose lists are long", tell: tellLongCalendars},
	{name: "operations without end", tell: tellOperations(func(i int) (byte, object) {
		return typePutGroup, aGroup(fmt.Sprint("lie-operation", i%8), "target", fmt.Sprint("x", i))
	})},
	{name: "labels without end", tell: tellLabels},
	{name: "removals of hosts without end", tell: tellOperations(func(i int) (byte, object) {
		return typeRemoveHost, object{"id", newID(), "name", []string{"called", "nowhere", lieName()}[i%3]}
	})},
	{name: "marks of drift forgotten without end", tell: tellOperations(func(i int) (byte, object) {
		return typeForgetDrift, object{"id", newID(), "name", fmt.Sprint("lie", i%8)}
	})},
	{name: "rules of retention without end", tell: tellOperations(func(i int) (byte, object) {
		name := fmt.Sprint("lie-operation", i%8)
		if i%5 == 0 {
			return typeDeleteRetention, object{"id", newID(), "name", name}
		}
		return typeSetRetention, aRule(name, "order", i)
	})},
	{name: "notifications put, tested and tried again without end", tell: tellOperations(func(i int) (byte, object) {
		name := fmt.Sprint("lie-operation", i/5%4)
		if i%5 == 0 {
			return typePutNotification, aNotification(name, "on", list{"*"})
		}
		return typeChangeNotification, object{"id", newID(), "name", name, "kind", []string{"test", "retry", "pause", "unpause"}[i%5-1], "reason", "a lie"}
	})},
	{name: "one schedule paused without end", tell: tellOneSchedule},
})

// longCrons are expressions of 1 KiB: some never fire, some hardly ever, and some often.
func longCrons() (crons []string) {
	list := func(item string) string { return strings.Repeat(item+",", 900/(len(item)+1)) + item }
	for _, cron := range []string{"0 0 # 2 *", "0 0 */31 # *", "0 0 */29 2 #", "0 0 0 */29 2 * #"} {
		for _, item := range []string{"30W", "2", "1#5", "5L", "2096"} {
			crons = append(crons, strings.ReplaceAll(cron, "#", list(item)))
		}
	}
	return append(crons, "0 0 "+list("30")+" 2 *")
}

// tellLongCrons puts schedules and windows whose days take long to find, alone and in sets, and asks for their times. Another caller must be
// able to put something meanwhile.
func tellLongCrons(t *teller) error {
	crons := longCrons()
	err := t.greeted(t.many(2, 8), func(p *peer) error {
		var set list
		var puts, windows, asks []object
		for i, cron := range crons {
			name := lieName()
			m := aSchedule(name, "cron", cron, "tz", []string{"America/New_York", "Africa/Casablanca"}[i%2])
			puts = append(puts, m)
			windows = append(windows, aWindow(name, "from", 0, "to", 0, "cron", cron, "for", int64(time.Hour)))
			set = append(set, encode(object{"schedule", m[3]}))
			asks = append(asks, object{"name", name, "n", 1000}, object{"name", name, "n", 1000, "from", time.Now().AddDate(60, 0, 0).UnixNano()})
		}
		for range t.many(1, 10) {
			for _, one := range set {
				if err := p.isAnswered(typeApply, object{"managed", "liar", "documents", list{one}, "dry", true}); err != nil {
					return err
				}
			}
			for kind, messages := range map[byte][]object{typePutSchedule: puts, typePutWindow: windows, typeNextTimes: asks} {
				if err := p.isAnswered(kind, messages...); err != nil {
					return err
				}
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return t.putsBeside()
}

// putsBeside puts something as another caller, which must not wait long.
func (t *teller) putsBeside() error {
	p, err := t.callerNamed("other")
	if err != nil {
		return err
	}
	begun := time.Now()
	for _, d := range documents {
		name := lieName()
		if f, err := p.ask(d.put, d.message(name)); err != nil || f.kind != typeReply {
			return fmt.Errorf("another caller puts a document, type %d: %w: %.200q", d.put, err, f.body)
		}
		if _, err := p.ask(d.remove, object{"id", newID(), "name", name}); err != nil {
			return err
		}
	}
	if took := time.Since(begun); took > 10*time.Second {
		return fmt.Errorf("another caller waits for %v until documents are put and deleted", took)
	}
	return nil
}

// tellLongCalendars puts calendars of as many events as there may be, whose days take long to find, and lists what was put.
func tellLongCalendars(t *teller) error {
	var files [][]byte
	list := func(item string, n int) string { return strings.Repeat(item+",", n) + item }
	for _, rule := range []string{
		"FREQ=DAILY;COUNT=9999;BYMONTHDAY=" + list("1", 300) + ",2,3,4,5,6,7,8,9,10,11,12", "FREQ=DAILY;COUNT=10000", "FREQ=YEARLY;COUNT=99;BYWEEKNO=" + list("1", 390),
		"FREQ=YEARLY;BYSETPOS=" + list("-366", 100) + ",366;BYDAY=" + list("MO", 60) + ",TU,WE,TH,FR,SA,SU", "FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=29",
	} {
		event := "BEGIN:VEVENT\r\nUID:x\r\nDTSTART:20200101T000000Z\r\nDURATION:PT1S\r\nRRULE:" + rule + "\r\nEND:VEVENT\r\n"
		files = append(files, []byte("BEGIN:VCALENDAR\r\n"+strings.Repeat(event, min(t.many(30, 1000), 700<<10/len(event)))+"END:VCALENDAR\r\n"))
	}
	err := t.greeted(t.many(2, 8), func(p *peer) error {
		for _, content := range files {
			name := lieName()
			if _, err := p.ask(typePutWindow, aWindow(name, "from", 0, "to", 0, "cal", object{"content", content})); err != nil {
				return err
			}
			now := time.Now()
			var asks, lists []object
			for i := range t.many(2, 16) {
				asks = append(asks, object{"name", name, "from", now.AddDate(i, 0, 0).UnixNano(), "to", now.AddDate(i+2, 0, 0).UnixNano()})
				lists = append(lists, object{"limit", 100})
			}
			if err := p.isAnswered(typeWindowSpans, asks...); err != nil {
				return err
			}
			if err := p.isAnswered(typeWindows, lists...); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return t.putsBeside()
}

// tellOperations asks for as many changes at once as a session may, and keeps that up. Another caller, which wants to change something, must
// not wait until all of them are made.
func tellOperations(operation func(i int) (byte, object)) func(t *teller) error {
	return func(t *teller) error {
		var telling sync.WaitGroup
		defer telling.Wait()
		for i := range t.many(2, 8) {
			p, err := t.callerSession()
			if err != nil {
				return err
			}
			defer p.close()
			telling.Go(func() {
				for err := error(nil); err == nil; {
					var all []byte
					for n := range 1000 {
						kind, m := operation(i + n)
						all = append(all, frameBytes(p.nextExchange(), kind, endFlag, encode(m))...)
					}
					err = p.areAnswered(all)
				}
			})
		}
		for range t.many(2, 10) {
			if err := t.putsBeside(); err != nil {
				return err
			}
		}
		return nil
	}
}

// tellLabels labels hosts without end.
func tellLabels(t *teller) error {
	err := tellOperations(func(i int) (byte, object) {
		target := []string{"called", "nowhere", fmt.Sprint("lie=", i%7), "*"}[i%4]
		return typeLabelHosts, object{"id", newID(), "target", target, "set", object{"lie", fmt.Sprint(i % 7)}}
	})(t)
	if err != nil {
		return err
	}
	p, err := t.callerNamed("other")
	if err != nil {
		return err
	}
	return p.taken(typeLabelHosts, object{"id", newID(), "target", "*", "unset", list{"lie"}})
}

// tellOneSchedule pauses one schedule as often at once as a session may, and keeps that up. Another caller, who wants to pause it, must not
// wait until all of that is done.
func tellOneSchedule(t *teller) error {
	name := lieName()
	owner, err := t.callerSession()
	if err != nil {
		return err
	}
	if err := owner.taken(typePutSchedule, aSchedule(name)); err != nil {
		return err
	}
	other, err := t.callerNamed("other")
	if err != nil {
		return err
	}
	pause := func() object { return object{"id", newID(), "name", name, "kind", "pause", "reason", "a lie"} }
	var telling sync.WaitGroup
	defer telling.Wait()
	for range t.many(4, 8) {
		p, err := t.callerSession()
		if err != nil {
			return err
		}
		defer p.close()
		telling.Go(func() {
			for err := error(nil); err == nil; {
				messages := make([]object, 1000)
				for n := range messages {
					messages[n] = pause()
				}
				err = p.isAnswered(typeChangeSchedule, messages...)
			}
		})
	}
	for begun, tried := time.Now(), 0; time.Since(begun) < 3*time.Second; tried++ {
		asked := time.Now()
		if err := other.taken(typeChangeSchedule, pause()); err != nil {
			return err
		}
		if took := time.Since(asked); took > 5*time.Second {
			return fmt.Errorf("another caller waits for %v until a schedule is paused, the %d. time", took, tried)
		}
	}
	return nil
}
