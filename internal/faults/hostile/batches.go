//go:build linux

package hostile

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strings"
	"time"
)

// liesOfBatches are told by callers, about many hosts at once.
var liesOfBatches = toDispatcher(caller, []lie{
	{name: "batches without end", tell: tellManyBatches},
	{name: "batches out of range", tell: tellBatchRanges},
	{name: "lists of hosts that are not what they say", tell: tellHostLists},
	{name: "chains of steps that are too many or too large", tell: tellSteps},
	{name: "logs of batches that nobody reads", tell: tellUnreadLogs},
	{name: "waiters for logs of batches", tell: tellLogWaiters},
	{name: "previews without end", tell: tellPreviews},
	{name: "drift under names without end", tell: tellDrift},
})

// aBatch is the bytes of the request of a batch, with more fields, or the same ones with other values.
func aBatch(id string, more ...any) []byte {
	return encode(with(object{
		"v", 1, "id", id, "target", "called", "proc", "work", "args", user(object{}),
		"needs",
		list{"batch"},
		"notbefore", time.Now().Add(time.Hour).UnixNano(), "queue", user(object{"name", lineOfLies}),
	}, more...))
}

// batchOf submits a batch that waits for an hour.
func (p *peer) batchOf(more ...any) (string, error) {
	id := newID()
	return id, p.taken(typeSubmit, submission(aBatch(id, more...)))
}

func tellManyBatches(t *teller) error {
	return t.greeted(t.many(2, 16), func(p *peer) error {
		for i := range t.many(60, 1000) {
			id := newID()
			more := []any{"queue", nil}
			if i%2 == 0 {
				more = []any{"batch", object{"queueper", true}}
			}
			f, err := p.ask(typeSubmit, submission(aBatch(id, more...)))
			if err != nil {
				return err
			}
			if f.kind == typeReply && i%5 > 0 {
				for _, kind := range []string{"pause", "resume", "no such kind", "cancel", "resume"} {
					if _, err := p.ask(typeChangeBatch, object{"id", newID(), "batch", id, "kind", kind, "reason", "a lie"}); err != nil {
						return err
					}
				}
			}
		}
		return t.canListDocuments()
	})
}

// tellBatchRanges says both ends of every number of a batch.
func tellBatchRanges(t *teller) error {
	return t.asking(t.many(1, 4), func(p *asker) error {
		for _, field := range []string{"parallel", "rolling", "wavepause", "approve", "subset", "shuffle", "rate", "rateper", "stopafter", "onstop", "maxhosts", "confirmed", "probe", "whenunfit", "whenheld", "drift", "retry", "then", "rebootwait"} {
			for _, v := range append(ends, list{"100%", "1%"}, "0%", "-1%", "99999999999999999999%", "1e9%", strings.Repeat("9", 10000), obeyed[1], object{}, nil) {
				id := newID()
				f, err := p.ask(typeSubmit, submission(aBatch(id, "batch", object{field, v})))
				if err != nil {
					return fmt.Errorf("%s %v: %w", field, v, err)
				}
				if f.kind == typeReply {
					if _, err := p.ask(typeChangeBatch, object{"id", newID(), "batch", id, "kind", "cancel"}); err != nil {
						return err
					}
				}
			}
		}
		id := newID()
		if _, err := p.ask(typeSubmit, submission(aBatch(id))); err != nil {
			return err
		}
		for _, v := range ends {
			for _, m := range []object{
				{"id", id, "from", v, "at", v}, {"id", id, "from", v, "at", v, "records", true}, {"id", id, "tail", true, "recent", v}, {"id", id, "tail", v},
			} {
				if _, err := p.ask(typeBatchPull, m); err != nil {
					return fmt.Errorf("%v: %w", m, err)
				}
			}
		}
		_, err := p.ask(typeChangeBatch, object{"id", newID(), "batch", id, "kind", "cancel"})
		return err
	})
}

// listed is the bytes of a list of hosts, each after its length.
func listed(names ...string) (b []byte) {
	for _, name := range names {
		b = binary.BigEndian.AppendUint16(b, uint16(len(name)))
		b = append(b, name...)
	}
	return b
}

func tellHostLists(t *teller) error {
	digest := func(b []byte) string {
		sum := sha256.Sum256(b)
		return hex.EncodeToString(sum[:])
	}
	var many []string
	for i := range 60_000 {
		many = append(many, fmt.Sprintf("host%06d", i))
	}
	lists := [][]byte{
		nil,
		{0},
		{0xff, 0xff},
		{0, 0},
		listed("called", "called"), listed("b", "a"), listed(""), listed(obeyed...), listed(strings.Repeat("x", 60000)),
		listed(many...), make([]byte, 1<<20), make([]byte, 1<<20+1), append(listed("called"), 0, 9, 'x'),
	}
	return t.asking(t.many(2, 8), func(p *asker) error {
		for i, hosts := range lists {
			for _, l := range []object{
				{"count", 1, "digest", digest(hosts)},
				{"count", len(many), "digest", digest(hosts)},
				{"count", ends[i%len(ends)], "digest", digest(hosts)},
				{"count", 1, "digest", strings.Repeat("0", 64)},
				{"count", 1, "digest", strings.Repeat("f", 50000)},
				{"COUNT", 1},
				{},
			} {
				if f, err := p.ask(typeSubmit, submission(aBatch(newID(), "target", "", "list", l), "hosts", hosts)); err != nil || f.kind == typeReply {
					return fmt.Errorf("list %d of %v is taken: %w", i, l, err)
				}
			}
		}
		f, err := p.ask(typeSubmit, submission(aBatch(newID(), "target", "", "list", object{"count", 1, "digest", digest(listed("called"))}), "hosts", listed("called")))
		if err == nil && f.kind != typeReply {
			err = fmt.Errorf("an honest list is refused: %.200q", f.body)
		}
		return err
	})
}

func tellSteps(t *teller) error {
	step := func(more ...any) object { return with(object{"proc", "work"}, more...) }
	return t.asking(t.many(1, 4), func(p *asker) error {
		for _, then := range []any{
			manySteps(33), manySteps(4000),
			object{},
			1,
			list{object{}},
			list{nil},
			list{step("proc", strings.Repeat("p", 50000))},
			list{step("proc", obeyed[0])},
			list{step("args", object{})},
			list{step("args", user(object{"a", 1, "a", 2}))},
			list{step("args", user(strings.Repeat("x", 1<<20+1)))},
			list{step("on", "no such ending")},
			list{step("timeout", -1)},
			list{step("maxexec", "x")},
			list{step("retry", object{"on", manyOf("lost", 4000)})},
		} {
			id := newID()
			if err := p.refused(typeSubmit, submission(aBatch(id, "batch", object{"then", then}))); err != nil {
				return fmt.Errorf("%.100v: %w", then, err)
			}
		}
		var large list
		for range 31 {
			large = append(large, step("args", user(object{"fill", strings.Repeat("x", 60000)})))
		}
		for range t.many(3, 60) {
			id := newID()
			if _, err := p.ask(typeSubmit, submission(aBatch(id, "needs", list{"batch", "chain"}, "batch", object{"then", large}))); err != nil {
				return err
			}
			if _, err := p.ask(typeChangeBatch, object{"id", newID(), "batch", id, "kind", "cancel"}); err != nil {
				return err
			}
		}
		return t.canListDocuments()
	})
}

// ranBatch submits a batch that ends, with records.
func (t *teller) ranBatch(records, size int) (string, error) {
	p, err := t.callerSession()
	if err != nil {
		return "", err
	}
	defer p.close()
	id := newID()
	args := user(object{"records", records, "size", size})
	if err := p.taken(typeSubmit, submission(aBatch(id, "args", args, "notbefore", 0, "queue", nil))); err != nil {
		return "", err
	}
	_, err = p.ask(typeBatch, object{"id", id, "wait", true})
	return id, err
}

func tellUnreadLogs(t *teller) error {
	id, err := t.ranBatch(t.many(200, 1000), 30000)
	if err != nil {
		return err
	}
	question := encode(object{"id", id, "records", true})
	err = t.greeted(t.many(4, 16), func(p *peer) error {
		p.stopListening()
		var b []byte
		for range 2000 {
			b = append(b, frameBytes(p.nextExchange(), typeBatchPull, endFlag, question)...)
		}
		t.flood(p, b, 1)
		return nil
	})
	if err != nil {
		return err
	}
	return t.hold()
}

func tellLogWaiters(t *teller) error {
	p, err := t.callerSession()
	if err != nil {
		return err
	}
	id, err := p.batchOf()
	if err != nil {
		return err
	}
	err = t.greeted(t.many(2, 6), func(p *peer) error {
		var b []byte
		for i := range t.many(1000, 4000) {
			kind, m := byte(typeBatchPull), object{"id", id, "wait", true, "records", i%2 == 0}
			if i%3 == 0 {
				kind, m = typeBatch, object{"id", id, "wait", true}
			}
			b = append(b, frameBytes(p.nextExchange(), kind, endFlag, encode(m))...)
		}
		t.flood(p, b, 1)
		return nil
	})
	if err != nil {
		return err
	}
	return t.hold()
}

// tellPreviews asks what many long targets select, and does not wait for the answers.
func tellPreviews(t *teller) error {
	var names []string
	for i := range 60_000 {
		names = append(names, fmt.Sprintf("host%06d", i))
	}
	hosts := listed(names...)
	sum := sha256.Sum256(hosts)
	listing := object{"count", len(names), "digest", hex.EncodeToString(sum[:])}
	args := object{"fill", strings.Repeat("x", 500_000)}
	return t.greeted(t.many(2, 16), func(p *peer) error {
		defer p.close()
		for i := range t.many(20, 200) {
			m := object{"req", aBatch(newID(), "target", "", "list", listing, "args", user(args)), "hosts", hosts}
			if i%2 == 0 {
				m = object{"req", aBatch(newID(), "target", strings.Repeat("(~(a|b){1,9}c) or ", 200)+"called")}
			}
			x := p.nextExchange()
			if err := p.sayBytes(frameBytes(x, typePreview, endFlag, encode(m))); err != nil {
				return err
			}
			if i%3 == 0 {
				if err := p.sayBytes(frameBytes(x, typeReset, 0, nil)); err != nil {
					return err
				}
			}
		}
		_, err := p.ask(typePing, object{})
		return err
	})
}

// tellDrift has hosts marked under more names than there may be.
func tellDrift(t *teller) error {
	host := newName("checked")
	if err := t.checks(host); err != nil {
		return err
	}
	return t.greeted(t.many(2, 8), func(p *peer) error {
		for range t.many(60, 500) {
			id := newID()
			if _, err := p.ask(typeSubmit, submission(aBatch(id, "target", host, "needs", list{"batch", "dry_run"}, "dry", true, "notbefore", 0, "queue", nil, "batch", object{"drift", newName("lie-")}))); err != nil {
				return err
			}
			if _, err := p.ask(typeBatch, object{"id", id, "wait", true}); err != nil {
				return err
			}
		}
		f, err := p.ask(typeDrift, object{"limit", 4000})
		if err == nil && f.kind != typeReply {
			err = fmt.Errorf("drift cannot be listed: %.200q", f.body)
		}
		return err
	})
}
