//go:build linux

package hostile

import (
	"strings"
	"sync"
	"time"
)

// reply is one frame of an agent's answer to CALL.
type reply struct {
	kind, flags byte
	body        []byte
}

func frameOf(kind, flags byte, message any) reply {
	if message == nil {
		return reply{kind, flags, nil}
	}
	return reply{kind, flags, encode(message)}
}

var accepted = frameOf(typeAccepted, 0, object{"started", object{"time", 1}})

func records(first int64, n int) reply {
	var all list
	for range n {
		all = append(all, object{"t", 1, "v", user("x")})
	}
	return frameOf(typeRecords, 0, object{"first", first, "records", all})
}

func end(records int64) reply {
	return frameOf(typeEnd, endFlag, object{"records", records, "ran", 1, "value", user("done")})
}

func hugeFailure(field string) reply {
	return frameOf(typeEnd, endFlag, object{"records", 0, "ran", 1, "failure", object{"code", "remote", "type", "t", "msg", "m", field, strings.Repeat("x", 4<<20-1000)}})
}

func manyNumbers(n int) (all list) {
	for i := range n {
		all = append(all, i)
	}
	return all
}

func answerWith(frames ...reply) []reply { return frames }

// answer answers each CALL and RESUME with the same frames.
func answer(frames []reply) func(*peer, frame) {
	var sending sync.Mutex
	return func(p *peer, f frame) {
		if f.kind != typeCall && f.kind != typeResume {
			return
		}
		go func() { // ends with the session at the latest
			sending.Lock()
			defer sending.Unlock()
			for _, r := range frames {
				_ = p.sayBytes(frameBytes(f.exchange, r.kind, r.flags, r.body))
			}
		}()
	}
}

// tellAnswers calls a procedure of an agent that answers with a lie. The call must come to an
// end, be it by force, and what can be listed must be listed.
func tellAnswers(frames []reply) func(*teller) error {
	return func(t *teller) error {
		host := newName("answers")
		if _, err := t.agentSession(liar{name: host, procedures: list{procedure("work")}, handle: answer(frames)}); err != nil {
			return err
		}
		p, err := t.callerSession()
		if err != nil {
			return err
		}
		for range t.many(1, 30) {
			if err := callAndGiveUp(p, host); err != nil {
				return err
			}
		}
		return t.canList()
	}
}

// callAndGiveUp calls a procedure, waits for the end or gives it up.
func callAndGiveUp(p *peer, host string) error {
	id := newID()
	if _, err := p.ask(typeSubmit, submission(request(id, host, "work", object{}))); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { // ends with the session at the latest
		_, err := p.ask(typeResult, object{"id", id, "wait", true})
		ended <- err
	}()
	select {
	case err := <-ended:
		return err
	case <-time.After(100 * time.Millisecond): // it may last until its host is lost
	}
	for _, kind := range []byte{typeCancelJob, typeForceLost, typeStatus, typePull} {
		if _, err := p.ask(kind, object{"id", id, "now", true, "why", "a lie"}); err != nil {
			return err
		}
	}
	return nil
}

// tellUnended calls many times what never ends.
func tellUnended(frames []reply) func(*teller) error {
	return func(t *teller) error {
		host := newName("unended")
		if _, err := t.agentSession(liar{name: host, procedures: list{procedure("work")}, handle: answer(frames)}); err != nil {
			return err
		}
		p, err := t.callerSession()
		if err != nil {
			return err
		}
		for range t.many(100, 2000) {
			req := request(newID(), host, "work", object{}, "queue", user(object{"name", lineOfLies}), "conc", 1000)
			if _, err := p.ask(typeSubmit, submission(req)); err != nil {
				return err
			}
		}
		return t.hold()
	}
}
