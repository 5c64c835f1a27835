package rows

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
)

// retentionModel is what has ended, in the plainest way: a list.
type retentionModel struct {
	rules map[string]harp.RetentionRule
	kept  []*endedOf // by their ends
}

type endedOf struct {
	id      string
	isBatch bool
	at      time.Time
	rule    harp.RetentionRule // that held; the zero one: none
	bytes   int64              // that it counts in its class
}

// fits is the rule that holds for a procedure.
func (m *retentionModel) fits(procedure string, state harp.State) harp.RetentionRule {
	var found []harp.RetentionRule
	for _, r := range m.rules {
		if (r.Procedure == "" || r.Procedure == procedure) && (len(r.States) == 0 || r.States[0] == state) {
			found = append(found, r)
		}
	}
	if len(found) == 0 {
		return harp.RetentionRule{}
	}
	return slices.MinFunc(found, func(a, b harp.RetentionRule) int {
		if a.Order != b.Order {
			return a.Order - b.Order
		}
		return strings.Compare(a.Name, b.Name)
	})
}

// sameClass reports whether two rules keep alike.
func sameClass(a, b harp.RetentionRule) bool {
	return a.Name == b.Name && a.Keep == b.Keep && a.MaxBytes == b.MaxBytes
}

// prune forgets what a Prune without a limit of bytes deletes.
func (m *retentionModel) prune(r store.Retention) {
	m.kept = slices.DeleteFunc(m.kept, func(e *endedOf) bool {
		switch {
		case e.rule.Keep == 0:
			return !r.EndedBefore.IsZero() && e.at.Before(r.EndedBefore)
		case e.rule.Keep == harp.NoLimit || r.RulesAt.IsZero():
			return false
		}
		return e.at.Before(r.RulesAt.Add(-e.rule.Keep))
	})
	for n := 0; n < len(m.kept); { // of each class that takes too much what ended first
		e := m.kept[n]
		if e.rule.MaxBytes == 0 || m.bytes(e.rule) <= e.rule.MaxBytes {
			n++
			continue
		}
		m.kept = slices.Delete(m.kept, n, n+1)
	}
}

func (m *retentionModel) bytes(of harp.RetentionRule) (sum int64) {
	for _, e := range m.kept {
		if sameClass(e.rule, of) {
			sum += e.bytes
		}
	}
	return sum
}

// TestRetentionModel plays rules, ends and Prunes at random against a list of what has ended, over reopenings.
func TestRetentionModel(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		e := newTrial()
		s := opened(t, e, Options{})
		defer func() { _ = s.Close() }()
		now := noon
		m := &retentionModel{rules: map[string]harp.RetentionRule{}}
		procedures := []string{"p", "q", "r"}
		check := func() {
			for _, one := range m.kept {
				var err error
				if one.isBatch {
					_, err = s.Batch(t.Context(), one.id)
				} else {
					_, err = s.Job(t.Context(), one.id)
				}
				if err != nil {
					r.Fatalf("%+v: %v", one, err)
				}
			}
			left := e.count(endedPrefix(byBatchEnd, 0)...) + e.count(prefixIndex, byClassBatchEnd)
			for _, kind := range [][]byte{endedPrefix(byEnded, 0), {prefixIndex, byClassEnded}} {
				for item := range e.items() {
					if strings.HasPrefix(string(item.Key), string(kind)) {
						left += (len(item.Value) - crcSize) / endedSize
					}
				}
			}
			if left != len(m.kept) {
				r.Fatalf("%d are left of what has ended, want %d", left, len(m.kept))
			}
			for _, c := range s.RetentionClasses() {
				want := m.bytes(harp.RetentionRule{Name: c.Rule, Keep: c.Keep, MaxBytes: c.MaxBytes})
				if c.MaxBytes > 0 && c.Bytes != want {
					r.Fatalf("%+v stores %d bytes", c, want)
				}
			}
		}
		r.Repeat(map[string]func(*rapid.T){
			"rule": func(r *rapid.T) {
				rule := harp.RetentionRule{
					Name: rapid.SampledFrom([]string{"a", "b", "c"}).Draw(r, "name"), Order: rapid.IntRange(0, 2).Draw(r, "order"),
					Procedure: rapid.SampledFrom(append(procedures, "")).Draw(r, "procedure"),
					Keep:      rapid.SampledFrom([]time.Duration{0, day, 3 * day, harp.NoLimit}).Draw(r, "keep"),
					MaxBytes:  rapid.SampledFrom([]int64{0, 1, 2000, 5000}).Draw(r, "bytes"),
				}
				if rapid.Bool().Draw(r, "of a state") {
					rule.States = []harp.State{rapid.SampledFrom([]harp.State{harp.StateCancelled, harp.StateSucceeded}).Draw(r, "state")}
				}
				if rule.Keep == 0 && rule.MaxBytes == 0 {
					rule.Keep = day
				}
				putRule(t, s, rule)
				m.rules[rule.Name] = rule
			},
			"no rule": func(r *rapid.T) {
				name := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(r, "name")
				content, err := s.Document(t.Context(), store.RetentionKind, name)
				if err != nil {
					return
				}
				change := store.DocumentChange{Kind: store.RetentionKind, Name: name, Old: content}
				if _, err := s.ChangeDocuments(t.Context(), store.DocumentChanges{Changes: []store.DocumentChange{change}}); err != nil {
					r.Fatal(err)
				}
				delete(m.rules, name)
			},
			"end": func(r *rapid.T) {
				now = now.Add(time.Duration(rapid.IntRange(1, 20).Draw(r, "hours")) * time.Hour)
				some := rapid.SliceOfN(rapid.SampledFrom(procedures), 1, 5).Draw(r, "procedures")
				for _, j := range endAt(t, s, now, some...) {
					m.kept = append(m.kept, &endedOf{id: j.ID, at: now, rule: m.fits(j.Procedure, j.State), bytes: j.Counted})
				}
			},
			"end batch": func(r *rapid.T) {
				now = now.Add(time.Duration(rapid.IntRange(1, 20).Draw(r, "hours")) * time.Hour)
				b := endBatchAt(t, s, now, rapid.SampledFrom(procedures).Draw(r, "procedure"), rapid.IntRange(1, 4).Draw(r, "hosts"))
				m.kept = append(m.kept, &endedOf{id: b.ID, isBatch: true, at: now, rule: m.fits(b.Member.Procedure, harp.State(b.State)), bytes: b.Counted})
			},
			"prune": func(r *rapid.T) {
				now = now.Add(time.Duration(rapid.IntRange(0, 40).Draw(r, "hours")) * time.Hour)
				var keep store.Retention
				if rapid.Bool().Draw(r, "by age") {
					keep.EndedBefore = now.Add(-2 * day)
				}
				if rapid.Bool().Draw(r, "by rules") {
					keep.RulesAt = now
				}
				m.prune(keep)
				prune(t, s, keep, now)
			},
			"prune for room": func(r *rapid.T) {
				keep := store.Retention{MaxBytes: rapid.Int64Range(1, max(1, s.stored.Load())).Draw(r, "bytes")}
				m.prune(keep)
				prune(t, s, keep, now)
				var gone time.Time // when the last ended that was deleted
				m.kept = slices.DeleteFunc(m.kept, func(one *endedOf) bool {
					_, err := s.Job(t.Context(), one.id)
					if one.isBatch {
						_, err = s.Batch(t.Context(), one.id)
					}
					if err != nil {
						gone = one.at
					}
					return err != nil
				})
				if len(m.kept) > 0 && (s.stored.Load() > keep.MaxBytes || gone.After(m.kept[0].at)) {
					r.Fatalf("%d bytes are left, at most %d are wanted, and what ended at %v is gone, not that at %v", s.stored.Load(), keep.MaxBytes, gone, m.kept[0].at)
				}
			},
			"reopen": func(r *rapid.T) {
				had := fmt.Sprint(s.RetentionClasses())
				if err := s.Close(); err != nil {
					r.Fatal(err)
				}
				s = opened(t, e, Options{})
				if got := fmt.Sprint(s.RetentionClasses()); got != had {
					r.Fatalf("the classes are %s after %s", got, had)
				}
			},
			"": func(*rapid.T) { check() },
		})
	})
}
