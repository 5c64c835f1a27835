//go:build linux

package hostile

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"strings"
	"time"
)

// liesOfDispatchers are told to agents, with the certificate of a dispatcher or, in direct
// sessions, with a caller's.
var liesOfDispatchers = append(toAgent(dispatcher, []lie{
	{name: "a dispatcher that says nothing", tell: tellNoWelcome},
	{name: "WELCOME before HELLO was read", tell: tellWelcomeFirst},
	{name: "a WELCOME that is none", tell: tellOtherWelcome},
	{name: "both ends of what WELCOME says", tell: tellWelcomeRanges},
	{name: "an epoch of 2^63-1", tell: tellEpoch},
	{name: "stores without end", tell: tellStores},
	{name: "sessions that take each other's place", tell: tellReplaced},
	{name: "calls of 2 MiB without end", tell: tellHugeCalls},
	{name: "half a CALL on many streams", tell: tellHalfCalls},
	{name: "calls that are not read", tell: tellUnreadCalls},
	{name: "results that nobody takes", tell: tellUntakenEnds},
	{name: "records that nobody takes", tell: tellUntakenRecords},
	{name: "ends that nobody takes, without end", tell: tellManyUntaken},
	{name: "calls of procedures that there are not", tell: tellNoProcedures},
	{name: "calls under ids that are none", tell: tellCallIDs},
	{name: "both ends of what CALL says", tell: tellCallRanges},
	{name: "CALL with keys in other cases, and twice", tell: tellCallKeys},
	{name: "the same attempt again and again", tell: tellSameAttempt},
	{name: "attempts of one job without end", tell: tellManyAttempts},
	{name: "a caller's name that a terminal would obey", tell: tellWho},
	{name: "RESUME of attempts that there are not", tell: tellResume},
	{name: "RESUME out of range", tell: tellResumeRanges},
	{name: "ACK of what was never sent", tell: tellAcks},
	{name: "a storm of CANCEL", tell: tellCancels},
	{name: "a storm of RESET, to an agent", tell: tellCallResets},
	{name: "FORGET without end", tell: tellForgets},
	{name: "BEAT without end", tell: tellBeats},
	{name: "frames that are an agent's", tell: tellAgentsFrames},
	{name: "bodies that are bombs, to an agent", tell: tellAgentBombs},
	{name: "exchanges without end, to an agent", tell: tellCallsAtOnce},
}), toAgent(caller, []lie{
	{name: "direct sessions that say nothing", tell: tellNoDirectHello},
	{name: "direct sessions without end", tell: tellDirectSessions},
	{name: "direct calls that come and go", tell: tellDirectGoing},
	{name: "a direct caller that does not read", tell: tellDeafCaller},
	{name: "RESUME by a direct caller", tell: tellDirectResume},
	{name: "ACKs of a direct caller that go backwards", tell: tellDirectAcks},
	{name: "the frames of a dispatcher by a direct caller", tell: tellDirectFrames},
})...)

func toAgent(as role, all []lie) []lie {
	for i := range all {
		all[i].as, all[i].to = as, agent
	}
	return all
}

func tellNoWelcome(t *teller) error {
	const allowed = 16 // an agent closes those that are too many
	err := t.each(t.many(50, 1000), func(i int) error {
		if _, err := t.session("dispatcher", nil); i < allowed {
			return err
		}
		return nil
	})
	if err != nil {
		return err
	}
	return t.hold()
}

func tellWelcomeFirst(t *teller) error {
	return t.each(t.many(10, 100), func(int) error {
		p, err := t.session("dispatcher", nil)
		if err != nil {
			return err
		}
		for range 100 {
			if p.say(0, typeWelcome, 0, welcome("early", 1)) != nil {
				break
			}
		}
		p.close()
		return nil
	})
}

func tellOtherWelcome(t *teller) error {
	for _, w := range []any{
		object{},
		object{"v", 1},
		object{"v", 3, "store", "s"},
		object{"v", "2"},
		list{},
		nil,
		object{"V", 2, "STORE", "s"},
		object{"v", 2, "v", 3},
		object{"v", 2, "store", list{}},
		encoded{0xc1},
		encoded(bombs[0]),
	} {
		p, err := t.session("dispatcher", nil)
		if err != nil {
			return err
		}
		if _, err := p.expect(typeHello); err != nil {
			return err
		}
		_ = p.say(0, typeWelcome, 0, w)
		p.close()
	}
	return nil
}

// greetedDispatcher is a session of a dispatcher with a store of its own, at the moment.
func (t *teller) greetedDispatcher() (*peer, error) {
	t.epoch = time.Now().UnixNano()
	return t.dispatcherSession(welcome("liar", t.epoch))
}

func tellWelcomeRanges(t *teller) error {
	for _, field := range []string{"epoch", "beat", "recon", "time", "max"} {
		for _, v := range []int64{math.MinInt64, -1, 0, 1, math.MaxInt64} {
			p, err := t.session("dispatcher", nil)
			if err != nil {
				return err
			}
			_ = greetAgent(p, welcome(newName("range"), 1, field, v)) // it may be refused
			p.close()
		}
	}
	for _, store := range []string{strings.Repeat("s", 60000), "", obeyed[1], "../../x"} {
		p, err := t.session("dispatcher", nil)
		if err != nil {
			return err
		}
		_ = greetAgent(p, welcome(store, 1)) // it may be refused
		p.close()
	}
	return nil
}

// tellEpoch says the highest epoch there is. A dispatcher with another store must be heard all the
// same.
func tellEpoch(t *teller) error {
	p, err := t.dispatcherSession(welcome(newName("epoch"), math.MaxInt64))
	if err != nil {
		return err
	}
	p.close()
	p, err = t.dispatcherSession(welcome(newName("epoch"), 1))
	if err != nil {
		return fmt.Errorf("another dispatcher is locked out: %w", err)
	}
	p.close()
	return nil
}

func tellStores(t *teller) error {
	for range t.many(50, 2000) {
		p, err := t.dispatcherSession(welcome(newName(strings.Repeat("s", 100)), 1))
		if err != nil {
			return err
		}
		p.close()
	}
	return nil
}

func tellReplaced(t *teller) error {
	return t.each(t.many(20, 300), func(i int) error {
		p, err := t.session("dispatcher", nil)
		if err != nil {
			return err
		}
		_ = greetAgent(p, welcome("one", int64(i))) // an older one is refused
		return nil
	})
}

// callOf is the body of CALL.
func callOf(t *teller, id string, args any, more ...any) object {
	return append(object{
		"req", request(id, t.host, "work", args), "attempt", 1, "epoch", t.epoch, "timeout", int64(time.Hour), "maxexec", int64(time.Hour),
		"window", 1 << 20, "who",
		object{"kind", "caller", "name", "liar"},
	}, more...)
}

// calling greets the agent and sends it CALLs. The agent may end the session at any time.
func (t *teller) calling(calls ...object) error {
	p, err := t.greetedDispatcher()
	if err != nil {
		return err
	}
	defer p.close()
	for _, c := range calls {
		if p.say(p.nextExchange(), typeCall, 0, c) != nil {
			return nil
		}
	}
	return nil
}

func tellHugeCalls(t *teller) error {
	p, err := t.greetedDispatcher()
	if err != nil {
		return err
	}
	sig := make([]byte, 2<<20)
	t.work.Go(func() {
		for range t.many(200, 2000) {
			if p.say(p.nextExchange(), typeCall, 0, callOf(t, newID(), object{"sleep", int64(time.Second)}, "sig", sig)) != nil {
				return
			}
		}
	})
	select {
	case <-p.over:
	case <-t.ctx.Done():
	case <-time.After(time.Second):
	}
	return t.hold()
}

func tellHalfCalls(t *teller) error {
	half := make([]byte, submitSize-1)
	err := t.each(t.many(2, 8), func(i int) error {
		p, err := t.session("dispatcher", nil)
		if err != nil {
			return err
		}
		_ = greetAgent(p, welcome("half", int64(i))) // a later one has its place
		for range 64 {
			s, err := p.openStream()
			if err != nil {
				return nil
			}
			named := frameHeader(p.nextExchange(), typeCall, longFlag, submitSize)
			_ = p.sayBytes(binary.BigEndian.AppendUint32(named, s.id))
			t.work.Go(func() { _, _ = s.Write(half) })
		}
		return nil
	})
	if err != nil {
		return err
	}
	return t.hold()
}

func tellUnreadCalls(t *teller) error {
	p, err := t.greetedDispatcher()
	if err != nil {
		return err
	}
	p.stopListening()
	t.work.Go(func() {
		for range t.many(500, 5000) {
			if p.say(p.nextExchange(), typeCall, 0, callOf(t, newID(), object{"returns", 100 << 10})) != nil {
				return
			}
		}
	})
	return t.hold()
}

// tellUntakenEnds lets results be, without ACK. What it has left is forgotten at the end.
func tellUntakenEnds(t *teller) error {
	p, err := t.greetedDispatcher()
	if err != nil {
		return err
	}
	ids := make([]string, t.many(60, 800))
	for i := range ids {
		ids[i] = newID()
		if err := p.say(p.nextExchange(), typeCall, 0, callOf(t, ids[i], object{"returns", 900 << 10})); err != nil {
			return nil // it may have had enough
		}
	}
	return t.hold()
}

// tellManyUntaken lets short calls end, takes no end, and gives up each exchange. What has ended stays in the agent's journal, and the
// next dispatcher is told of all of it, in a greeting that may have 8 MiB.
func tellManyUntaken(t *teller) error {
	const greeting = 8 << 20
	store := newName("untaken")
	t.epoch = time.Now().UnixNano()
	calls := make(chan struct{}, 512) // that have not ended
	p, err := t.dispatcherSessionWith(welcome(store, t.epoch), func(p *peer, f frame) {
		if f.end {
			_ = p.sayBytes(frameBytes(f.exchange, typeReset, 0, nil))
			select {
			case <-calls:
			default:
			}
		}
	})
	if err != nil {
		return err
	}
	for range t.many(2000, 100_000) {
		select {
		case calls <- struct{}{}:
		case <-p.over:
			return errGone
		case <-t.ctx.Done():
			return nil
		}
		if err := p.say(p.nextExchange(), typeCall, 0, callOf(t, newID(), object{})); err != nil {
			return err
		}
	}
	p.close()
	listed, ready := 0, make(chan struct{}, 1)
	p, err = t.session("dispatcher", func(p *peer, f frame) {
		switch held := fields(f.body); f.kind {
		case typeHeld: // it is forgotten, so that others find room
			listed += len(f.body)
			var forget list
			attempts, _ := held["attempts"].([]any)
			for _, a := range attempts {
				is, _ := a.(map[string]any)
				forget = append(forget, object{"job", is["job"], "attempt", is["attempt"]})
			}
			last, _ := held["last"].(bool)
			_ = p.say(0, typeForget, 0, object{"attempts", forget, "last", last})
		case typeReady:
			select {
			case ready <- struct{}{}:
			default:
			}
		}
	})
	if err != nil {
		return err
	}
	defer p.close()
	if _, err := p.expect(typeHello); err != nil {
		return err
	}
	if err := p.say(0, typeWelcome, 0, welcome(store, t.epoch+1)); err != nil {
		return err
	}
	select {
	case <-ready:
	case <-p.over:
		return errGone
	}
	if listed > greeting/2 {
		return fmt.Errorf("an agent says %d bytes of attempts in its greeting, which may have %d in all", listed, greeting)
	}
	return nil
}

func tellUntakenRecords(t *teller) error {
	p, err := t.greetedDispatcher()
	if err != nil {
		return err
	}
	for range t.many(30, 500) {
		call := callOf(t, newID(), object{"records", 10000, "size", 60000}, "window", int64(math.MaxInt64), "maxexec", int64(time.Second))
		if err := p.say(p.nextExchange(), typeCall, 0, call); err != nil {
			return nil // it may have had enough
		}
	}
	return t.hold()
}

func tellNoProcedures(t *teller) error {
	p, err := t.greetedDispatcher()
	if err != nil {
		return err
	}
	for _, procedure := range append(obeyed, "no such procedure", strings.Repeat("p", 10000), "", "../x", "WORK", "Work") {
		for range t.many(5, 100) {
			f, err := p.askWith(typeCall, 0, object{"req", request(newID(), t.host, procedure, object{}), "attempt", 1, "epoch", t.epoch, "window", 1 << 20})
			if err != nil {
				return err
			}
			if f.kind != typeRefused && f.kind != typeNotNow {
				return fmt.Errorf("procedure %.50q is answered by frame %d", procedure, f.kind)
			}
		}
	}
	return nil
}

func tellCallIDs(t *teller) error {
	for _, id := range noIDs {
		if err := t.calling(callOf(t, id, object{})); err != nil {
			return fmt.Errorf("id %.50q: %w", id, err)
		}
	}
	return nil
}

func tellCallRanges(t *teller) error {
	for _, field := range []string{"attempt", "fence", "epoch", "timeout", "maxexec", "left", "window"} {
		for _, v := range []int64{math.MinInt64, -1, 0, 1, math.MaxInt64} {
			if err := t.calling(callOf(t, newID(), object{}, field, v)); err != nil {
				return fmt.Errorf("%s %d: %w", field, v, err)
			}
		}
	}
	return nil
}

func tellCallKeys(t *teller) error {
	req := request(newID(), t.host, "work", object{})
	for _, call := range []object{
		{"REQ", req, "ATTEMPT", 1},
		{},
		{"req", nil},
		{"req", req, "req", nil, "attempt", 1},
		{"req", encode(list{}), "attempt", 1},
		callOf(t, newID(), object{"sleep", 1, "sleep", 2}), callOf(t, newID(), object{"SLEEP", int64(time.Hour)}), callOf(t, newID(), object{"no such", 1}),
		callOf(t, newID(), list{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}), callOf(t, newID(), "x"), callOf(t, newID(), object{}, "needs", list{"no such feature"}),
		callOf(t, newID(), object{}, "needs", make(list, 4000)),
	} {
		if err := t.calling(call); err != nil {
			return err
		}
	}
	return nil
}

func tellSameAttempt(t *teller) error {
	call := callOf(t, newID(), object{"records", 3})
	p, err := t.greetedDispatcher()
	if err != nil {
		return err
	}
	t.work.Go(func() {
		for range t.many(1000, 20000) {
			if p.say(p.nextExchange(), typeCall, 0, call) != nil {
				return
			}
		}
	})
	return t.hold()
}

func tellManyAttempts(t *teller) error {
	id := newID()
	p, err := t.greetedDispatcher()
	if err != nil {
		return err
	}
	t.work.Go(func() {
		for i := range t.many(200, 5000) {
			if p.say(p.nextExchange(), typeCall, 0, callOf(t, id, object{}, "attempt", 1+i)) != nil {
				return
			}
		}
	})
	return t.hold()
}

func tellWho(t *teller) error {
	for _, name := range append(obeyed, strings.Repeat("x", 60000)) {
		who := object{"kind", name, "name", name, "auth", name}
		if err := t.calling(callOf(t, newID(), object{}, "who", who, "key", name)); err != nil {
			return err
		}
	}
	return nil
}

func tellResume(t *teller) error {
	p, err := t.greetedDispatcher()
	if err != nil {
		return err
	}
	t.work.Go(func() {
		for range t.many(2000, 50000) {
			if p.say(p.nextExchange(), typeResume, 0, object{"job", newID(), "attempt", 1, "epoch", t.epoch, "from", 0, "window", 1 << 20}) != nil {
				return
			}
		}
	})
	return t.hold()
}

func tellResumeRanges(t *teller) error {
	id := newID()
	for _, field := range []string{"attempt", "epoch", "from", "window"} {
		for _, v := range []int64{math.MinInt64, -1, math.MaxInt64} {
			p, err := t.greetedDispatcher()
			if err != nil {
				return err
			}
			_ = p.say(p.nextExchange(), typeCall, 0, callOf(t, id, object{"records", 3}))
			_ = p.say(p.nextExchange(), typeResume, 0, object{"job", id, "attempt", 1, "epoch", t.epoch, "from", 0, "window", 1 << 20, field, v})
			p.close()
		}
	}
	return nil
}

func tellAcks(t *teller) error {
	for _, v := range []int64{math.MinInt64, -1, 1000, math.MaxInt64} {
		p, err := t.greetedDispatcher()
		if err != nil {
			return err
		}
		x := p.nextExchange()
		_ = p.say(x, typeCall, 0, callOf(t, newID(), object{"records", 10, "pace", int64(time.Millisecond)}))
		_ = p.say(x, typeAck, 0, object{"next", v, "window", v})
		_ = p.say(x, typeAck, 0, object{"next", 0, "end", true})
		p.close()
	}
	return nil
}

func tellCancels(t *teller) error {
	p, err := t.greetedDispatcher()
	if err != nil {
		return err
	}
	cancel := object{"by", object{"kind", "caller", "name", obeyed[1]}}
	t.work.Go(func() {
		for range t.many(20, 200) {
			x := p.nextExchange()
			_ = p.say(x, typeCall, 0, callOf(t, newID(), object{"sleep", int64(time.Hour)}))
			if p.sayBytes(bytes.Repeat(frameBytes(x, typeCancel, 0, encode(cancel)), 500)) != nil {
				return
			}
		}
	})
	return t.hold()
}

func tellCallResets(t *teller) error {
	p, err := t.greetedDispatcher()
	if err != nil {
		return err
	}
	t.work.Go(func() {
		for range t.many(1000, 20000) {
			x := p.nextExchange()
			b := append(frameBytes(x, typeCall, 0, encode(callOf(t, newID(), object{}))), frameBytes(x, typeReset, 0, nil)...)
			if p.sayBytes(b) != nil {
				return
			}
		}
	})
	return t.hold()
}

func tellForgets(t *teller) error {
	p, err := t.greetedDispatcher()
	if err != nil {
		return err
	}
	var attempts list
	for range 300 {
		attempts = append(attempts, object{"job", newID(), "attempt", 1, "state", "ended"})
	}
	attempts = append(attempts, object{"job", "../../x", "attempt", int64(math.MinInt64), "state", "ended"})
	t.flood(p, frameBytes(0, typeForget, 0, encode(object{"attempts", attempts})), t.many(200, 5000))
	return t.hold()
}

func tellBeats(t *teller) error {
	for _, beat := range []int64{0, -1, 1, math.MaxInt64, math.MinInt64} {
		p, err := t.greetedDispatcher()
		if err != nil {
			return err
		}
		t.flood(p, bytes.Repeat(frameBytes(0, typeBeat, 0, encode(object{"beat", beat})), 100), t.many(5, 100))
	}
	return t.hold()
}

func tellAgentsFrames(t *teller) error {
	for _, kind := range []byte{0, typeCall, typeAccepted, typeHello, typeWelcome, typeFacts, typeProcedures, typeHeld, typeReady, typeReply, 100} {
		p, err := t.greetedDispatcher()
		if err != nil {
			return err
		}
		if err := t.brokenBy(p, kind); err != nil {
			return err
		}
	}
	return nil
}

func tellAgentBombs(t *teller) error {
	for _, kind := range []byte{typeCall, typeResume} {
		for _, bomb := range bombs {
			p, err := t.greetedDispatcher()
			if err != nil {
				return err
			}
			_ = p.sayBytes(frameBytes(p.nextExchange(), kind, 0, bomb))
			p.close()
		}
	}
	return nil
}

func tellCallsAtOnce(t *teller) error {
	p, err := t.greetedDispatcher()
	if err != nil {
		return err
	}
	t.work.Go(func() {
		for range t.many(5000, 100000) {
			if p.say(p.nextExchange(), typeCall, 0, callOf(t, newID(), object{"sleep", int64(100 * time.Millisecond)})) != nil {
				return // it had enough
			}
		}
	})
	return t.hold()
}
