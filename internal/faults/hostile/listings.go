//go:build linux

package hostile

import (
	"fmt"
	"strings"
)

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
