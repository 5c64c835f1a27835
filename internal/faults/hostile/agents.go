//go:build linux

package hostile

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"
)

// liesOfAgents are told with the certificate of an agent, to its dispatcher.
var liesOfAgents = toDispatcher(agent, []lie{
	{name: "a HELLO and no more", tell: tellHelloAlone},
	{name: "frames after HELLO that are not heard", tell: tellAfterHello},
	{name: "a HELLO with fields that are too long", tell: tellLongFields},
	{name: "facts that are none", tell: tellOtherFacts},
	{name: "procedures without end", tell: tellPages(typeProcedures)},
	{name: "held attempts without end", tell: tellPages(typeHeld), long: "the median of honest calls is 170 ms"},
	{name: "empty pages without end", tell: tellEmptyPages},
	{name: "held attempts out of range", tell: tellHeldRanges},
	{name: "the attempts of another host", tell: tellOthersAttempts},
	{name: "READY without end", tell: tellNews(typeReady, object{})},
	{name: "facts again and again", tell: tellNews(typeFacts, object{"facts", user(object{"a", strings.Repeat("x", 30000)})})},
	{name: "procedures again and again", tell: tellNews(typeProcedures, object{"procs", list{procedure("work")}, "last", true})},
	{name: "a page of procedures that never ends", tell: tellEndlessNews},
	{name: "BEAT that nobody asked for", tell: tellBeat},
	{name: "frames that are a dispatcher's", tell: tellOthersFrames},
	{name: "an agent that begins exchanges", tell: tellOwnExchanges},
	{name: "procedures with names that a terminal would obey", tell: tellProcedureNames},
	{name: "a schema with $REF", tell: tellSchemas(`{"$REF":"#"}`, `{"$Ref":"#"}`, `{"$ref":"#"}`, `{"properties":{"a":{"$REF":"#"}}}`, `{"$dynamicRef":"#"}`, `{"ALLOF":[{"$REF":"#"}]}`)},
	{name: "schemas with patterns that are bombs", tell: tellSchemas(patternBomb(1000), patternBomb(1), `{"properties":{"a":{"pattern":"((((a{100}){100}){100}){100})"}}}`, `{"patternProperties":{"(.*a){25}":{}}}`)},
	{name: "schemas with branches that are bombs", tell: tellSchemas(branchBomb("anyOf", 200), branchBomb("oneOf", 200), branchBomb("allOf", 200), notBomb(500))},
	{name: "schemas that are deep, doubled or no JSON", tell: tellSchemas(strings.Repeat(`{"not":`, 5000)+`{}`+strings.Repeat(`}`, 5000), `{"type":"object","type":"string"}`, `{`, ``, `[]`, `"x"`, `null`, `{"type":"object"}{}`, `{"minLength":1e400}`, `{"required":["`+strings.Repeat("a", 30000)+`"]}`, `{"uniqueItems":true,"items":{"uniqueItems":true}}`)},
	{name: "a host that refuses every call", tell: tellAnswers(answerWith(frameOf(typeRefused, endFlag, object{"failure", object{"code", "rejected", "msg", "a lie", "host", "called", "job_id", newID()}})))},
	{name: "NOT_NOW to every call", tell: tellUnended(answerWith(frameOf(typeNotNow, endFlag, object{"reason", "busy"})))},
	{name: "a host that never answers a call", tell: tellUnended(answerWith())},
	{name: "a call that is accepted and never ends", tell: tellUnended(answerWith(frameOf(typeAccepted, 0, object{"started", object{"time", 1}})))},
	{name: "a call that is never acknowledged in a queue", tell: tellStuckQueue},
	{name: "an end before the beginning", tell: tellAnswers(answerWith(frameOf(typeEnd, endFlag, object{"records", int64(math.MaxInt64), "ran", -1})))},
	{name: "a start in the far future", tell: tellAnswers(answerWith(frameOf(typeAccepted, 0, object{"started", object{"time", int64(math.MaxInt64), "ran", int64(math.MinInt64)}}), frameOf(typeEnd, endFlag, object{"records", 0, "ran", int64(math.MaxInt64), "value", user(nil), "taken", int64(math.MaxInt64)})))},
	{name: "an end with a failure of 4 MiB", tell: tellAnswers(answerWith(accepted, hugeFailure("type")))},
	{name: "an end with a code of 4 MiB", tell: tellAnswers(answerWith(accepted, hugeFailure("code")))},
	{name: "an end with a text of 4 MiB", tell: tellAnswers(answerWith(accepted, hugeFailure("msg")))},
	{name: "an end with data of 4 MiB", tell: tellAnswers(answerWith(accepted, frameOf(typeEnd, endFlag, object{"records", 0, "ran", 1, "failure", object{"code", "remote", "type", "t", "data", user(strings.Repeat("x", 4<<20-100))}})))},
	{name: "an end with a value of 4 MiB", tell: tellAnswers(answerWith(accepted, frameOf(typeEnd, endFlag, object{"records", 0, "ran", 1, "value", user(strings.Repeat("x", 4<<20-100))})))},
	{name: "an end with words that a terminal would obey", tell: tellAnswers(answerWith(accepted, frameOf(typeEnd, endFlag, object{"records", 0, "ran", 1, "failure", object{"code", obeyed[0], "type", obeyed[1], "msg", obeyed[3], "host", obeyed[2], "job_id", obeyed[5]}})))},
	{name: "records that overtake each other", tell: tellAnswers(answerWith(accepted, records(5, 1), records(0, 3), records(2, 1), end(9)))},
	{name: "records of negative numbers", tell: tellAnswers(answerWith(accepted, records(-1, 3), end(3)))},
	{name: "records at the end of the range", tell: tellAnswers(answerWith(accepted, records(math.MaxInt64-1, 3), end(math.MaxInt64)))},
	{name: "records that are too long", tell: tellAnswers(answerWith(accepted, frameOf(typeRecords, 0, object{"first", 0, "records", list{object{"t", 1, "v", user(strings.Repeat("x", 3<<20))}}}), end(1)))},
	{name: "records of kinds that there are not", tell: tellAnswers(answerWith(accepted, frameOf(typeRecords, 0, object{"first", 0, "records", list{object{"t", int64(math.MinInt64), "k", obeyed[1], "v", user("x")}, object{"t", 1, "k", strings.Repeat("k", 1<<20), "v", user("x")}}}), end(2)))},
	{name: "records beyond every window", tell: tellRecordFlood},
	{name: "survivors without end", tell: tellAnswers(answerWith(accepted, frameOf(typeStopping, 0, object{"cause", "no such cause", "since", int64(math.MaxInt64), "left", append(make(list, 0), manyNumbers(4000)...)}), end(0)))},
	{name: "a storm of exchanges that are reset", tell: tellUnended(answerWith(frameOf(typeReset, 0, nil)))},
	{name: "a second agent of the same name", tell: tellTwins},
	{name: "a second agent with the instance of the first", tell: tellSameInstance},
	{name: "an agent that comes and goes", tell: tellComing},
	{name: "an agent that does not read", tell: tellDeafAgent},
	{name: "agents that do not let calls in", tell: tellNotLetIn},
})

func tellHelloAlone(t *teller) error {
	err := t.each(t.many(20, 300), func(int) error {
		p, err := t.session(newName("silent"), nil)
		if err != nil {
			return err
		}
		return p.say(0, typeHello, 0, hello("journal", newID()))
	})
	if err != nil {
		return err
	}
	return t.hold()
}

func tellAfterHello(t *teller) error {
	page := bytes.Repeat(frameBytes(0, typeHeartbeat, 0, nil), 1000)
	err := t.each(t.many(4, 40), func(int) error {
		p, err := t.session(newName("silent"), nil)
		if err != nil {
			return err
		}
		if err := p.say(0, typeHello, 0, hello("journal", newID())); err != nil {
			return err
		}
		t.flood(p, page, t.many(10, 1000))
		return nil
	})
	if err != nil {
		return err
	}
	return t.hold()
}

// expectGone waits until the other side has ended the session or the lie is over.
func (t *teller) expectGone(p *peer) error {
	select {
	case <-p.over:
	case <-t.ctx.Done():
		return errors.New("the session was not closed")
	}
	return nil
}

func tellLongFields(t *teller) error {
	long := strings.Repeat("x", 30000)
	var labels object
	for i := range 1000 {
		labels = append(labels, fmt.Sprint("label", i), "x")
	}
	taken := []int64{0, math.MinInt64, math.MaxInt64}
	for i, more := range [][]any{
		{"instance", long},
		{"boot", long},
		{"journal", long},
		{"software", long},
		{"labels", labels},
		{"labels", object{long, long}},
		{"software", strings.Join(obeyed, "")},
		{"instance", ""},
		{"instance", obeyed[0]},
		{"features", make(list, 4000)},
		{"labels", object{"a", "1", "a", "2"}},
	} {
		p, err := t.session(newName("long"), nil)
		if err != nil {
			return err
		}
		_ = liar{hello: hello(append([]any{"journal", newID()}, more...)...), taken: taken[i%len(taken)]}.introduce(p) // it may be refused
		if err := t.canList(); err != nil {
			return fmt.Errorf("%.50v: %w", more, err)
		}
		p.close()
	}
	return nil
}

// canList fails unless hosts and jobs can be listed.
func (t *teller) canList() error {
	p, err := t.callerSession()
	if err != nil {
		return err
	}
	defer p.close()
	for _, kind := range []byte{typeHosts, typeJobs, typeQueues} {
		f, err := p.ask(kind, object{"limit", 100})
		if err != nil {
			return err
		}
		if f.kind != typeReply {
			return fmt.Errorf("a listing fails: %.300q", f.body)
		}
	}
	return nil
}

func tellOtherFacts(t *teller) error {
	deep := any(object{})
	for range 100 {
		deep = object{"a", deep}
	}
	for _, facts := range []any{
		object{"facts", user(1)},
		object{"facts", user(list{})},
		object{"facts", user(deep)},
		object{"facts", user(object{1, 2})},
		object{"facts", user(object{"a", 1, "a", 2})},
		object{"facts", []byte{0xc1}},
		object{"facts", []byte{}},
		object{"FACTS", user(object{})},
		object{"facts", 1},
		object{"facts", user(object{"a", encoded{0xc7, 1, 0x53, 1}})},
		object{"facts", user(object{obeyed[1], obeyed[3]})},
		object{"facts", user(object{"a", math.Inf(1), "b", math.NaN()})},
	} {
		p, err := t.session(newName("facts"), nil)
		if err != nil {
			return err
		}
		_ = liar{facts: facts}.introduce(p) // it may be refused
		if err := t.canList(); err != nil {
			return fmt.Errorf("%.50v: %w", facts, err)
		}
		p.close()
	}
	return nil
}

// greetedAgent says HELLO and facts, and hears WELCOME.
func (t *teller) greetedAgent(name string, handle func(*peer, frame)) (*peer, error) {
	p, err := t.session(name, handle)
	if err != nil {
		return nil, err
	}
	if err := p.say(0, typeHello, 0, hello("journal", newID())); err != nil {
		return nil, err
	}
	if _, err := p.expect(typeWelcome); err != nil {
		return nil, err
	}
	return p, p.say(0, typeFacts, 0, object{"facts", user(object{})})
}

// tellPages sends pages without a last one.
func tellPages(kind byte) func(*teller) error {
	return func(t *teller) error {
		return t.each(t.many(2, 30), func(int) error {
			p, err := t.greetedAgent(newName("pages"), nil)
			if err != nil {
				return err
			}
			if kind == typeHeld {
				_ = p.say(0, typeProcedures, 0, object{"last", true})
			}
			for n := range 1 << 20 {
				var message object
				if kind == typeHeld {
					var attempts list
					for range 300 {
						attempts = append(attempts, object{"job", newID(), "attempt", 1, "state", "ended"})
					}
					message = object{"attempts", attempts}
				} else {
					message = object{"procs", list{procedure(fmt.Sprint("p", n), "doc", strings.Repeat("x", 30000))}}
				}
				if p.say(0, kind, 0, message) != nil {
					break
				}
			}
			return t.expectGone(p)
		})
	}
}

func tellEmptyPages(t *teller) error {
	return t.each(t.many(2, 30), func(int) error {
		p, err := t.greetedAgent(newName("pages"), nil)
		if err != nil {
			return err
		}
		pages := bytes.Repeat(frameBytes(0, typeProcedures, 0, encode(object{})), 1000)
		for p.sayBytes(pages) == nil {
			continue
		}
		return t.expectGone(p)
	})
}

func tellHeldRanges(t *teller) error {
	for _, v := range []int64{-1, math.MinInt64, math.MaxInt64, 1 << 48, 1 << 62} {
		for _, field := range []string{"attempt", "fence", "records", "acked"} {
			for _, state := range []string{"gone", "alive", "no such state"}[:t.many(1, 3)] {
				held := object{"job", newID(), "attempt", 1, "state", state, field, v}
				p, err := t.session(newName("held"), nil)
				if err != nil {
					return err
				}
				_ = liar{held: list{held, held, object{"job", "../../x", "attempt", 1, "state", state}}}.introduce(p) // it may be refused
				p.close()
			}
		}
	}
	return t.canList()
}

// tellOthersAttempts lists the job of another host as held, and answers for it.
func tellOthersAttempts(t *teller) error {
	p, err := t.callerSession()
	if err != nil {
		return err
	}
	id := newID()
	if f, err := p.ask(typeSubmit, submission(request(id, t.called, "work", object{"sleep", int64(time.Hour)}))); err != nil || f.kind != typeReply {
		return fmt.Errorf("frame %d: %w", f.kind, err)
	}
	defer func() { _, _ = p.ask(typeCancelJob, object{"id", id, "now", true}) }()
	for _, state := range []string{"alive", "ended", "gone", "withdrawn", "stopping"} {
		resumed := make(chan struct{}, 1)
		other, err := t.agentSession(liar{name: newName("thief"), held: list{object{"job", id, "attempt", 1, "state", state, "records", 5, "acked", 0}}, handle: func(_ *peer, f frame) {
			if f.kind == typeResume {
				resumed <- struct{}{}
			}
		}})
		if err != nil {
			return err
		}
		f, err := p.ask(typeStatus, object{"id", id})
		if err != nil {
			return err
		}
		if now, _ := fields(f.body)["state"].(string); now != "sent" && now != "running" && now != "queued" {
			return fmt.Errorf("another host says %s, and the job is %s", state, now)
		}
		select {
		case <-resumed:
			return fmt.Errorf("another host is asked for the job that it says is %s", state)
		default:
		}
		other.close()
	}
	return nil
}

// tellNews says the same again and again.
func tellNews(kind byte, message object) func(*teller) error {
	return func(t *teller) error {
		page := bytes.Repeat(frameBytes(0, kind, 0, encode(message)), 10)
		err := t.each(t.many(2, 20), func(int) error {
			p, err := t.agentSession(liar{name: newName("news")})
			if err == nil {
				t.flood(p, page, t.many(20, 2000))
			}
			return err
		})
		if err != nil {
			return err
		}
		return t.hold()
	}
}

func tellEndlessNews(t *teller) error {
	p, err := t.agentSession(liar{name: newName("news")})
	if err != nil {
		return err
	}
	page := frameBytes(0, typeProcedures, 0, encode(object{"procs", list{procedure("p", "doc", strings.Repeat("x", 50000))}}))
	for p.sayBytes(page) == nil {
		continue
	}
	return t.expectGone(p)
}

func tellBeat(t *teller) error {
	for _, beat := range []int64{0, -1, 1, math.MaxInt64, math.MinInt64} {
		p, err := t.agentSession(liar{name: newName("beat")})
		if err != nil {
			return err
		}
		_ = p.say(0, typeBeat, 0, object{"beat", beat})
		if err := t.expectGone(p); err != nil {
			return fmt.Errorf("beat %d: %w", beat, err)
		}
	}
	return nil
}

func tellOthersFrames(t *teller) error {
	for _, kind := range []byte{0, typeCall, typeAccepted, typeHello, typeWelcome, typeUnwelcome, typeHeld, typeForget, typeReply, typeSubmit, 100} {
		p, err := t.agentSession(liar{name: newName("other")})
		if err != nil {
			return err
		}
		if err := t.brokenBy(p, kind); err != nil {
			return err
		}
	}
	return nil
}

// brokenBy sends a frame in the control exchange that must end the session, and hangs up when that
// says that it ends: the other side would wait for it a second.
func (t *teller) brokenBy(p *peer, kind byte) error {
	if err := p.say(0, kind, 0, object{"last", true}); err != nil {
		return err
	}
	if err := t.expectGone(p); err != nil {
		return fmt.Errorf("frame %d: %w", kind, err)
	}
	return nil
}

func tellOwnExchanges(t *teller) error {
	return t.each(t.many(4, 40), func(i int) error {
		p, err := t.agentSession(liar{name: newName("own")})
		if err != nil {
			return err
		}
		_ = p.say(uint32(1+i*1000), typeAccepted, 0, object{})
		return t.expectGone(p)
	})
}

func tellProcedureNames(t *teller) error {
	var all list
	for _, name := range append(obeyed, "", strings.Repeat("p", 10000), "../x", "p", "p", "p") {
		all = append(all, procedure(name, "sum", obeyed[1], "doc", obeyed[3], "params", list{obeyed[0], name}, "traits", list{obeyed[4]}, "timeout", int64(math.MinInt64)))
	}
	for i := range all {
		p, err := t.session(newName("names"), nil)
		if err != nil {
			return err
		}
		_ = liar{procedures: all[i:]}.introduce(p) // it may be refused
		p.close()
	}
	return t.canList()
}

// tellStuckQueue takes a slot of a queue, and never says that it has. Who gives the job up must get
// the slot back.
func tellStuckQueue(t *teller) error {
	host := newName("stuck")
	called := make(chan struct{}, 16)
	if _, err := t.agentSession(liar{name: host, procedures: list{procedure("work")}, handle: func(_ *peer, f frame) {
		if f.kind == typeCall {
			called <- struct{}{}
		}
	}}); err != nil {
		return err
	}
	p, err := t.callerSession()
	if err != nil {
		return err
	}
	queue := user(object{"stuck", host})
	stuck, next := newID(), newID()
	if _, err := p.ask(typeSubmit, submission(request(stuck, host, "work", object{}, "queue", queue, "conc", 1))); err != nil {
		return err
	}
	select {
	case <-called:
	case <-t.ctx.Done():
		return errors.New("the agent is not called")
	}
	if _, err := p.ask(typeSubmit, submission(request(next, t.called, "work", object{}, "queue", queue, "conc", 1))); err != nil {
		return err
	}
	if f, err := p.ask(typeForceLost, object{"id", stuck, "why", "a lie"}); err != nil || f.kind != typeReply {
		return fmt.Errorf("it cannot be given up: %.200q, %w", f.body, err)
	}
	f, err := p.ask(typeResult, object{"id", next, "wait", true})
	if state, _ := fields(f.body)["state"].(string); state != "succeeded" {
		return fmt.Errorf("the next of the queue is %q, %w", state, err)
	}
	return err
}

// tellRecordFlood sends records without waiting for ACK.
func tellRecordFlood(t *teller) error {
	host := newName("flood")
	value := user(strings.Repeat("x", 60000))
	_, err := t.agentSession(liar{name: host, procedures: list{procedure("work")}, handle: func(p *peer, f frame) {
		if f.kind != typeCall {
			return
		}
		t.work.Go(func() {
			_ = p.sayBytes(frameBytes(f.exchange, accepted.kind, 0, accepted.body))
			for first := range t.many(1000, 20000) {
				b := encode(object{"first", first, "records", list{object{"t", 1, "v", value}}})
				if p.sayBytes(frameBytes(f.exchange, typeRecords, 0, b)) != nil {
					return
				}
			}
		})
	}})
	if err != nil {
		return err
	}
	p, err := t.callerSession()
	if err != nil {
		return err
	}
	id := newID()
	if _, err := p.ask(typeSubmit, submission(request(id, host, "work", object{}))); err != nil {
		return err
	}
	if _, err := p.ask(typePull, object{"id", id, "from", 10, "wait", true}); err != nil {
		return err
	}
	_, err = p.ask(typeForceLost, object{"id", id, "why", "a lie"})
	return err
}

// tellTwins comes as the agent that is there, with another key.
func tellTwins(t *teller) error {
	for range t.many(1, 10) {
		cert, err := t.ca.sign(template("harp://faults/agent/" + t.called))
		if err != nil {
			return err
		}
		conn, err := t.dial()
		if err != nil {
			return err
		}
		secured, err := t.prove(conn, protocols[[2]role{agent, dispatcher}], cert)
		if err != nil {
			return err
		}
		p, err := t.sessionOn(secured, false, nil)
		if err != nil {
			return err
		}
		_ = p.say(0, typeHello, 0, hello("journal", newID()))
		if f, err := p.expect(typeUnwelcome); err != nil {
			return fmt.Errorf("a second agent is answered by frame %d, %w", f.kind, err)
		}
	}
	return nil
}

// tellSameInstance comes as an agent that is there, with its instance and another key. The first must stay.
func tellSameInstance(t *teller) error {
	name, instance := newName("twin"), newID()
	greets := hello("instance", instance, "journal", newID())
	first, err := t.agentSession(liar{name: name, hello: greets, handle: func(p *peer, f frame) {
		if f.kind == typeForget {
			_ = p.say(0, typeReady, 0, object{})
		}
	}})
	if err != nil {
		return err
	}
	defer first.close()
	stay := make(chan struct{})
	defer close(stay)
	t.work.Go(func() { // it shows that it lives, as an agent does
		for {
			select {
			case <-stay:
				return
			case <-first.over:
				return
			case <-time.After(100 * time.Millisecond):
				_ = first.say(0, typeHeartbeat, 0, nil)
			}
		}
	})
	cert, err := t.ca.sign(template("harp://faults/agent/" + name))
	if err != nil {
		return err
	}
	conn, err := t.dial()
	if err != nil {
		return err
	}
	secured, err := t.prove(conn, protocols[[2]role{agent, dispatcher}], cert)
	if err != nil {
		return err
	}
	p, err := t.sessionOn(secured, false, nil)
	if err != nil {
		return err
	}
	_ = p.say(0, typeHello, 0, greets)
	if f, err := p.expect(typeUnwelcome); err != nil {
		return fmt.Errorf("a second agent with the instance of the first is answered by frame %d, %w", f.kind, err)
	}
	select {
	case <-first.over:
		return errors.New("the first agent has lost its session")
	default:
		return nil
	}
}

// tellComing connects the same agent again and again.
func tellComing(t *teller) error {
	name := newName("coming")
	for range t.many(100, 500) {
		p, err := t.agentSession(liar{name: name})
		if err != nil {
			return err
		}
		p.close()
	}
	return nil
}

// tellNotLetIn is called with long arguments on a few hosts that let none of them in, and are well otherwise. Then they go and come back.
func tellNotLetIn(t *teller) error {
	var gates []*peer
	a := liar{name: newName("gate"), procedures: list{procedure("work")}}
	for i := range 4 {
		conn, err := t.identified(agent, fmt.Sprint(a.name, i))
		if err != nil {
			return err
		}
		p, err := t.sessionOn(conn, false, nil)
		if err != nil {
			return err
		}
		p.grantless.Store(true)
		if err := a.introduce(p); err != nil {
			return err
		}
		gates = append(gates, p)
	}
	fill := strings.Repeat("x", 1_000_000)
	err := t.each(len(gates), func(i int) error {
		p, err := t.callerSession()
		for n := t.many(100, 300); n > 0 && err == nil; n-- {
			req := request(newID(), fmt.Sprint(a.name, i), "work", object{"fill", fill}, "queue", user(object{"name", lineOfLies}), "conc", 10000)
			_, err = p.ask(typeSubmit, submission(req))
		}
		return err
	})
	for i, p := range gates {
		p.close()
		if err != nil {
			break
		}
		_, err = t.agentSession(liar{name: fmt.Sprint(a.name, i)})
	}
	return err
}

// tellDeafAgent is called with long arguments, and takes none.
func tellDeafAgent(t *teller) error {
	host := newName("deaf")
	a, err := t.agentSession(liar{name: host, procedures: list{procedure("work")}})
	if err != nil {
		return err
	}
	a.stopListening()
	p, err := t.callerSession()
	if err != nil {
		return err
	}
	fill := strings.Repeat("x", 500<<10)
	for range t.many(40, 300) {
		req := request(newID(), host, "work", object{"fill", fill}, "queue", user(object{"name", lineOfLies}), "conc", 1000)
		if _, err := p.ask(typeSubmit, submission(req)); err != nil {
			return err
		}
	}
	return t.hold()
}
