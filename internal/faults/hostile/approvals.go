//go:build linux

package hostile

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// liesOfApprovals are told by callers, about what is approved, confirmed and made of others.
var liesOfApprovals = toDispatcher(caller, []lie{
	{name: "batches of hosts that there are not", tell: tellUnknownHosts},
	{name: "approvals that cross refusals", tell: tellApprovals},
	{name: "a confirmation of another request", tell: tellConfirmations},
	{name: "ids that are those of members", tell: tellMemberIDs},
	{name: "groups within groups", tell: tellGroupsInGroups},
	{name: "rules of retention that change behind each job", tell: tellClasses},
	{name: "drift that is forgotten while it is found", tell: tellForgottenDrift},
	{name: "labels that select those that they are set on", tell: tellOwnLabels},
	{name: "calendars from where nobody may be asked", tell: tellCalendarURLs},
	{name: "messages without end", tell: tellMessages},
})

// liesOfChains are told by an agent, about steps.
var liesOfChains = toDispatcher(agent, []lie{
	{name: "steps that end twice, and before they begin", tell: tellDoubleSteps},
})

// memberID is the id of what a batch has on a host in a step, as anybody can work it out.
func memberID(batch, host string, step int) string {
	id, _ := hex.DecodeString(strings.ReplaceAll(batch, "-", ""))
	sum := sha256.Sum256(append(binary.BigEndian.AppendUint32(slices.Clone(id), uint32(step)), host...))
	copy(id[8:], sum[:8])
	id[6], id[8] = id[6]&0x0f|8<<4, id[8]&0x3f|2<<6
	return fmt.Sprintf("%x-%x-%x-%x-%x", id[:4], id[4:6], id[6:8], id[8:10], id[10:])
}

// tellUnknownHosts submits batches for tens of thousands of hosts of which most are not there.
func tellUnknownHosts(t *teller) error {
	names := []string{"called"}
	for i := range 50_000 {
		names = append(names, fmt.Sprintf("nowhere%06d", i))
	}
	hosts := listed(names...)
	sum := sha256.Sum256(hosts)
	listing := object{"count", len(names), "digest", hex.EncodeToString(sum[:])}
	return t.greeted(t.many(1, 4), func(p *peer) error {
		for i := range t.many(2, 20) {
			id := newID()
			batch := object{"whenunfit", "skip", "parallel", len(names)}
			if i%2 == 0 {
				batch = object{"approvefirst", true}
			}
			f, err := p.ask(typeSubmit, submission(aBatch(id, "target", "", "list", listing, "batch", batch, "whenoff", "skip"), "hosts", hosts))
			if err != nil || f.kind != typeReply {
				return err
			}
			for _, m := range []object{{"states", list{"running", "paused"}}, {"states", list{}, "limit", 4000}} {
				if _, err := p.ask(typeBatches, m); err != nil {
					return err
				}
			}
			if err := p.taken(typeChangeBatch, object{"id", newID(), "batch", id, "kind", "cancel"}); err != nil {
				return err
			}
		}
		return t.canListDocuments()
	})
}

// tellApprovals approves and refuses the same batch at once: what was refused reaches no host, however often it is approved.
func tellApprovals(t *teller) error {
	return t.greeted(t.many(2, 8), func(p *peer) error {
		other, err := t.callerNamed("other")
		if err != nil {
			return err
		}
		defer other.close()
		for range t.many(10, 200) {
			id, err := p.batchOf("queue", nil, "notbefore", 0, "batch", object{"approvefirst", true})
			if err != nil {
				return err
			}
			change := func(kind string) object {
				return object{"id", newID(), "batch", id, "kind", kind, "reason", "a lie"}
			}
			var refusing sync.WaitGroup
			var refused error
			refusing.Go(func() { _, refused = other.ask(typeChangeBatch, change("cancel")) })
			err = p.isAnswered(typeChangeBatch, change("resume"), change("pause"), change("resume"), change("resume"))
			refusing.Wait()
			if err != nil || refused != nil {
				return fmt.Errorf("%w, %w", err, refused)
			}
			f, err := p.ask(typeBatch, object{"id", id, "wait", true})
			if err != nil {
				return err
			}
			b := fields(f.body)
			counts, _ := b["counts"].(map[string]any)
			if b["reason"] == "not_approved" && (b["state"] != "cancelled" || counts["cancelled"] != int64(1)) {
				return fmt.Errorf("a batch that was refused is %v with %v", b["state"], counts)
			}
			if err := p.refusedWith("conflict", typeChangeBatch, change("resume")); err != nil {
				return err
			}
		}
		return nil
	})
}

// tellConfirmations submits with the digest of a preview of something else.
func tellConfirmations(t *teller) error {
	return t.greeted(t.many(1, 8), func(p *peer) error {
		for range t.many(2, 40) {
			f, err := p.ask(typePreview, object{"req", aBatch(newID())})
			if err != nil {
				return err
			}
			digest, _ := fields(f.body)["digest"].(string)
			if digest == "" {
				return fmt.Errorf("a preview has no digest: frame %d, %.200q", f.kind, f.body)
			}
			confirmed := object{"confirmed", digest}
			for _, more := range [][]any{
				{"batch", confirmed, "args", user(object{"records", 1})},
				{"batch", confirmed, "proc", "again"},
				{"batch", confirmed, "target", "idle"},
				{"batch", confirmed, "target", "called,idle"},
				{"batch", confirmed, "dry", true},
				{"batch", confirmed, "queue", nil},
				{"batch", object{"confirmed", digest, "then", manySteps(1)}, "needs", list{"batch", "chain"}},
				{"batch", object{"confirmed", strings.ToUpper(digest)}},
				{"batch", object{"confirmed", digest[:len(digest)-1]}},
				{"batch", object{"confirmed", digest + " "}},
				{"batch", object{"confirmed", strings.Repeat("-", 50000)}},
				{"batch", object{"confirmed", "1--"}},
				{"batch", object{"confirmed", digest + "-" + digest}},
			} {
				f, err := p.ask(typeSubmit, submission(aBatch(newID(), more...)))
				if err != nil {
					return err
				}
				if f.kind == typeReply && strings.ToUpper(digest) != digest {
					return fmt.Errorf("%.100v is taken with the confirmation of another", more)
				}
			}
			id, err := p.batchOf("batch", confirmed)
			if err != nil {
				return fmt.Errorf("what was confirmed: %w", err)
			}
			if _, err := p.ask(typeChangeBatch, object{"id", newID(), "batch", id, "kind", "cancel"}); err != nil {
				return err
			}
		}
		return nil
	})
}

// tellMemberIDs takes the ids of members before the batch has reached them.
func tellMemberIDs(t *teller) error {
	p, err := t.callerSession()
	if err != nil {
		return err
	}
	id, err := p.batchOf("batch", object{"approvefirst", true})
	if err != nil {
		return err
	}
	for _, member := range []string{memberID(id, t.called, 1), memberID(id, t.called, 2), memberID(id, "idle", 1), memberID(id, t.called, 1<<31)} {
		for _, message := range []object{
			submission(request(member, t.called, "work", object{})), submission(aBatch(member)), submission(request(newID(), t.called, "work", object{}), "more", list{submission(request(member, t.called, "work", object{}))}),
		} {
			f, err := p.ask(typeSubmit, message)
			if err != nil {
				return err
			}
			if f.kind == typeReply && !strings.Contains(string(f.body), "invalid") { // of several calls each has its own answer
				return fmt.Errorf("a call with the id of a member is taken: %.200q", f.body)
			}
		}
		for _, d := range documents {
			if err := p.refusedWith("invalid", d.put, with(d.message(lieName()), "id", member)); err != nil {
				return err
			}
		}
		for kind, m := range map[byte]object{
			typeChangeBatch: {"id", newID(), "batch", member, "kind", "cancel"}, typeTrigger: {"id", member, "name", "x"}, typePauseHosts: {"id", member, "target", "nobody"},
			typeForceLost: {"id", member, "why", "a lie"}, typeBatchPull: {"id", member}, typePull: {"id", member, "from", 0},
		} {
			f, err := p.ask(kind, m)
			if err != nil {
				return err
			}
			if kind != typePull && f.kind != typeFailed {
				return fmt.Errorf("request %d with the id of a member is answered by frame %d: %.200q", kind, f.kind, f.body)
			}
		}
	}
	if err := p.taken(typeChangeBatch, object{"id", newID(), "batch", id, "kind", "cancel"}); err != nil {
		return err
	}
	f, err := p.ask(typeBatch, object{"id", id, "wait", true})
	if state := fields(f.body)["state"]; err == nil && state != "cancelled" {
		err = fmt.Errorf("the batch whose ids were taken is %v", state)
	}
	return err
}

// tellGroupsInGroups makes groups of groups, which stand for more than there could ever be.
func tellGroupsInGroups(t *teller) error {
	return t.greeted(t.many(2, 8), func(p *peer) error {
		last := lieName()
		if err := p.taken(typePutGroup, aGroup(last, "target", "called or "+strings.Repeat("~(a{1,10}){1,20}b or ", 9)+"called")); err != nil {
			return err
		}
		made := []string{last}
		for range 12 {
			next := lieName()
			f, err := p.ask(typePutGroup, aGroup(next, "target", strings.TrimSuffix(strings.Repeat("@"+last+" or not @"+last+" or ", 100), " or ")))
			if err != nil {
				return err
			}
			if f.kind == typeReply {
				last, made = next, append(made, next)
			}
			for kind, m := range map[byte]object{
				typeHosts: {"target", "@" + next}, typeExplain: {"target", "@" + next, "host", "called"}, typePreview: {"req", aBatch(newID(), "target", "@"+next)},
				typePutWindow: aWindow(next, "target", "@"+next+",@"+last), typePauseHosts: {"id", newID(), "target", "@" + next, "unpause", true},
			} {
				if _, err := p.ask(kind, m); err != nil {
					return fmt.Errorf("request %d of group %d: %w", kind, len(made), err)
				}
			}
		}
		first := made[0]
		for _, group := range []string{last, first} { // a circle
			if err := p.refusedWith("invalid", typePutGroup, aGroup(first, "target", "@"+group)); err != nil && first != last {
				return err
			}
		}
		return nil
	})
}

// tellClasses changes a rule behind each job that ends under it: what ended is kept by the rule as it was then. That is over
// before it is looked at what is left when all is at rest.
func tellClasses(t *teller) error {
	return t.greeted(t.many(1, 8), func(p *peer) error {
		name := lieName()
		for i := range t.many(30, 400) {
			f, err := p.ask(typeSetRetention, aRule(name, "proc", "work", "keep", int64(time.Second)+int64(i), "order", -i))
			if err != nil {
				return err
			}
			if f.kind != typeReply {
				break // there are enough
			}
			id := newID()
			if _, err := p.ask(typeSubmit, submission(request(id, t.called, "work", object{}))); err != nil {
				return err
			}
			if _, err := p.ask(typeResult, object{"id", id, "wait", true}); err != nil {
				return err
			}
			if _, err := p.ask(typeRetentionRules, object{"explain", id}); err != nil {
				return err
			}
			if i%10 == 0 {
				if _, err := p.ask(typeDeleteRetention, object{"id", newID(), "name", name}); err != nil {
					return err
				}
			}
		}
		return p.taken(typeRetentionRules, object{})
	})
}

// willing is what an agent says first that takes batches, chains and dry runs.
func willing() object {
	return hello("boot", "boot", "journal", newID(), "features", list{"batch", "chain", "dry_run"})
}

// checks is an agent whose hosts would all be changed.
func (t *teller) checks(host string) error {
	dirty := frameOf(typeEnd, endFlag, object{"records", 0, "ran", 1, "value", user(object{"changed", true})})
	one, err := t.sessionAs(agent, host, answer(answerWith(accepted, dirty)))
	if err != nil {
		return err
	}
	return liar{hello: willing(), procedures: list{procedure("work", "traits", list{"dry_run"})}}.introduce(one)
}

// tellForgottenDrift forgets marks while checks set them.
func tellForgottenDrift(t *teller) error {
	host := newName("checked")
	if err := t.checks(host); err != nil {
		return err
	}
	return t.greeted(t.many(2, 8), func(p *peer) error {
		for range t.many(10, 200) {
			name := newName("lie-")
			id := newID()
			f, err := p.ask(typeSubmit, submission(aBatch(id, "target", host, "dry", true, "needs", list{"batch", "dry_run"}, "notbefore", 0, "queue", nil, "batch", object{"drift", name})))
			if err != nil || f.kind != typeReply {
				return err // there may be as many names as there may be
			}
			var all []object
			for range 10 {
				all = append(all, object{"id", newID(), "name", name})
			}
			if err := p.isAnswered(typeForgetDrift, all...); err != nil {
				return err
			}
			if err := p.isAnswered(typeDrift, object{"name", name, "target", host}, object{"target", "not (called)", "limit", 1}, object{"name", name, "cursor", name}); err != nil {
				return err
			}
			if _, err := p.ask(typeBatch, object{"id", id, "wait", true}); err != nil {
				return err
			}
			for range 2 { // the second time there is none any more
				f, err = p.ask(typeForgetDrift, object{"id", newID(), "name", name})
				if err != nil {
					return err
				}
			}
			if code := codeOf(f); code != "not_found" {
				return fmt.Errorf("what was forgotten is forgotten again: frame %d, %.100q", f.kind, f.body)
			}
		}
		return nil
	})
}

// tellOwnLabels sets labels on the hosts that have them, many at once, and more than there may be.
func tellOwnLabels(t *teller) error {
	var many object
	for i := range 17 {
		many = append(many, fmt.Sprint("lie", i), "x")
	}
	err := t.greeted(t.many(2, 8), func(p *peer) error {
		for i := range t.many(20, 400) {
			is, other := fmt.Sprint(i%2), fmt.Sprint(1-i%2)
			for _, m := range []object{
				{"id", newID(), "target", "lie=" + is, "set", object{"lie", other}},
				{"id", newID(), "target", "not lie=" + other, "set", object{"lie", other}},
				{"id", newID(), "target", "lie=" + other, "set", many},
				{"id", newID(), "target", "called", "set", object{"lie", strings.Repeat("x", 250)}, "unset", list{"lie"}},
				{"id", newID(), "target", "called", "set", object{"lie", obeyed[i%len(obeyed)]}},
				{"id", newID(), "target", "called", "set", object{"", "x", "lie", ""}},
			} {
				if _, err := p.ask(typeLabelHosts, m); err != nil {
					return err
				}
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	p, err := t.callerSession()
	if err != nil {
		return err
	}
	unset := list{"lie"}
	for i := range 17 {
		unset = append(unset, fmt.Sprint("lie", i))
	}
	return p.taken(typeLabelHosts, object{"id", newID(), "target", t.called, "unset", unset})
}

// tellCalendarURLs puts windows whose calendars the dispatcher must not fetch.
func tellCalendarURLs(t *teller) error {
	return t.asking(t.many(4, 16), func(p *asker) error {
		for _, url := range []string{
			"https://" + t.dispatcher + "/x.ics", "https://" + t.agent + "/", "https://127.1/", "https://0x7f000001/", "https://2130706433/", "https://0177.0.0.1/", "https://[::1]/", "https://[::ffff:127.0.0.1]/",
			"https://[::ffff:7f00:1]/", "https://[fe80::1%25lo]/", "https://0.0.0.0/", "https://[::]/", "https://localhost/", "https://localhost./", "http://127.0.0.1/", "file:///etc/passwd", "ftp://127.0.0.1/", "https:///x",
			"https://a:b@127.0.0.1/", "https://127.0.0.1:0/", "https://127.0.0.1:99999/", "https://127.0.0.1/#x", "https://127.0.0.1/\r\nX: y", "//127.0.0.1/", "webcal://127.0.0.1/", strings.Repeat("x", 60000), "\x00", obeyed[1],
		} {
			for _, cal := range []object{{"url", url}, {"url", url, "content", calendar("RRULE:FREQ=DAILY")}} {
				f, err := p.ask(typePutWindow, aWindow(lieName(), "from", 0, "to", 0, "cal", cal))
				if err != nil || f.kind == typeReply {
					return fmt.Errorf("a calendar at %.60q is taken: %w", url, err)
				}
			}
		}
		return nil
	})
}

// tellMessages has notifications tell of what is said about themselves, tested and tried again without end.
func tellMessages(t *teller) error {
	return t.greeted(t.many(2, 8), func(p *peer) error {
		name := lieName()
		if f, err := p.ask(typePutNotification, aNotification(name, "on", list{"*"}, "include", list{"args", "result"})); err != nil || f.kind != typeReply {
			return err // there are enough
		}
		queue := user(object{"q", "lie of messages"})
		for i := range t.many(10, 200) {
			var tests, pauses []object
			for n := range 20 {
				kind := []string{"test", "retry", "pause", "unpause", "test"}[n%5]
				tests = append(tests, object{"id", newID(), "name", name, "kind", kind, "reason", strings.Repeat("r", 1000)})
				pauses = append(pauses, object{"id", newID(), "name", queue, "paused", n%2 == 0, "reason", strings.Repeat("r", 1000)})
			}
			if err := p.isAnswered(typeChangeNotification, tests...); err != nil {
				return err
			}
			if err := p.isAnswered(typeChange, pauses...); err != nil {
				return err
			}
			if err := p.isAnswered(typeNotifications, object{"name", name, "messages", true, "limit", 4000}, object{"name", name, "messages", true, "cursor", fmt.Sprint(i)}); err != nil {
				return err
			}
		}
		return p.taken(typeDeleteNotification, object{"id", newID(), "name", name})
	})
}

// tellDoubleSteps ends each step of a chain twice, and steps that were not called. Each step must be called once, in its turn.
func tellDoubleSteps(t *teller) error {
	const steps = 4
	host := newName("steps")
	var mu sync.Mutex
	var called []int64
	_, err := t.agentSession(liar{name: host, hello: willing(), procedures: list{procedure("work")}, handle: func(p *peer, f frame) {
		if f.kind != typeCall {
			return
		}
		step, _ := fields(f.body)["step"].(int64)
		mu.Lock()
		called = append(called, max(step, 1))
		mu.Unlock()
		go func() { // ends with the session at the latest
			for _, x := range []uint32{f.exchange + 1, f.exchange, f.exchange, f.exchange + 2} {
				for _, r := range []reply{accepted, end(0)} {
					_ = p.sayBytes(frameBytes(x, r.kind, r.flags, r.body))
				}
			}
		}()
	}})
	if err != nil {
		return err
	}
	p, err := t.callerSession()
	if err != nil {
		return err
	}
	for range t.many(3, 60) {
		id := newID()
		f, err := p.ask(typeSubmit, submission(aBatch(id, "target", host, "queue", nil, "notbefore", 0, "needs", list{"batch", "chain"}, "batch", object{"then", manySteps(steps - 1)})))
		if err != nil {
			return err
		}
		if f.kind != typeReply {
			return nil // its session was ended, and it is not known any more what it offers
		}
		ended := make(chan error, 1)
		go func() { // ends with the session at the latest
			_, err := p.ask(typeBatch, object{"id", id, "wait", true})
			ended <- err
		}()
		select {
		case err := <-ended:
			if err != nil {
				return err
			}
		case <-time.After(300 * time.Millisecond): // its session may have been ended
			if err := p.giveUpChain(id, host, steps); err != nil {
				return err
			}
		}
		mu.Lock()
		was := called
		called = nil
		mu.Unlock()
		if len(was) > steps || !slices.IsSorted(was) || len(slices.Compact(slices.Clone(was))) != len(was) {
			return fmt.Errorf("the steps of a chain were called in the order %v", was)
		}
	}
	return t.canListDocuments()
}

// giveUpChain ends a chain on a host that does not end its steps.
func (p *peer) giveUpChain(id, host string, steps int) error {
	if _, err := p.ask(typeChangeBatch, object{"id", newID(), "batch", id, "kind", "cancel"}); err != nil {
		return err
	}
	for step := range steps {
		if _, err := p.ask(typeForceLost, object{"id", memberID(id, host, step+1), "why", "a lie"}); err != nil {
			return err
		}
	}
	return nil
}
