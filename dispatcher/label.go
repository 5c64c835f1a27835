package dispatcher

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/text"
	"github.com/harpcaller/harp/internal/wire"
	"github.com/harpcaller/harp/store"
)

// The labels that operators give a host are a document, so that a host can have them that never
// connected, and keeps them whatever its agent and the registry say.
const (
	labelKind     = "label"
	labelledBytes = 1 << 20 // of documents and events in a commit, about
	maxLabelled   = 1 << 10 // bytes of what an event says was changed
)

// relabelled is a host whose labels are about to change.
type relabelled struct {
	host     *host
	labels   map[string]string // of operators, after it
	old, new []byte
}

// relabel makes the labels that operators have given a host others. Errors: harp.ErrInvalid
// (labels), when these are too many.
func (h *host) relabel(set map[string]string, unset []string) (relabelled, error) {
	before := h.operatorLabels()
	after := maps.Clone(before)
	if after == nil {
		after = map[string]string{}
	}
	maps.Copy(after, set)
	for _, key := range unset {
		delete(after, key)
	}
	if len(after) > harp.MaxLabels {
		return relabelled{}, &harp.FieldError{Field: "labels", Message: fmt.Sprintf("%s would have %d labels set by operators, at most %d", h.name, len(after), harp.MaxLabels)}
	}
	return relabelled{host: h, labels: after, old: encodeLabels(before), new: encodeLabels(after)}, nil
}

// encodeLabels returns the document of labels, nil of none. The same labels have the same.
func encodeLabels(labels map[string]string) []byte {
	if len(labels) == 0 {
		return nil
	}
	content, err := json.Marshal(labels)
	if err != nil {
		panic(fmt.Sprintf("encode labels: %v", err)) // texts can be encoded
	}
	return content
}

// loadLabels reads the labels that operators have given hosts.
func (d *Dispatcher) loadLabels(ctx context.Context) error {
	for cursor := ""; ; {
		page, next, err := d.store.ListDocuments(ctx, labelKind, cursor, 1000)
		if err != nil {
			return fmt.Errorf("stored labels: %w", err)
		}
		for _, doc := range page {
			var labels map[string]string
			if err := json.Unmarshal(doc.Content, &labels); err != nil {
				d.log.Error("labels of a host cannot be read: it is in all windows until they are set anew", "host", doc.Name, "err", err)
				d.hosts.get(doc.Name).loseLabels()
				continue
			}
			d.hosts.get(doc.Name).setOperatorLabels(labels)
		}
		if cursor = next; cursor == "" {
			return nil
		}
	}
}

// labelHosts changes the labels of the hosts that a target selects, once, and returns how many
// these are. Nothing is changed if the labels of one cannot be. They are stored some hosts at a
// time.
func (d *Dispatcher) labelHosts(ctx context.Context, op store.Operation, expr string, set map[string]string, unset []string) (int, error) {
	d.labelling.Lock()
	defer d.labelling.Unlock()
	if n, done, err := d.changedBefore(ctx, op, "target", expr); done || err != nil {
		return n, err
	}
	hosts, err := d.fleet.selectHosts(ctx, expr)
	if err != nil {
		return 0, d.rememberRefusal(ctx, op, err)
	}
	count := len(hosts)
	var all []relabelled
	for _, h := range hosts {
		one, err := h.relabel(set, unset)
		if err != nil {
			return 0, d.rememberRefusal(ctx, op, err)
		}
		if string(one.old) != string(one.new) || h.hasLostLabels() {
			all = append(all, one)
		}
	}
	did := text.Shorten(labelChange(set, unset), maxLabelled, "…")
	if err := d.principals.admitBytes(op.By, len(all)*(operationBytes+len(did))); err != nil {
		return 0, err
	}
	done, of := 0, len(all)
	for {
		n, size := 0, 0
		for n < len(all) && size < labelledBytes {
			size += len(all[n].new) + 2*len(all[n].host.name) + len(did) + 512
			n++
		}
		c := store.DocumentChanges{}
		if n == len(all) {
			c.Op, c.Count = op, count
		}
		if err := d.storeLabels(ctx, c, all[:n], harp.Event{Type: harp.EventHostLabelled, Time: op.Time, By: op.By, Reason: did}); err != nil {
			return 0, inPart("labelled", done, of, err)
		}
		done += n
		if all = all[n:]; len(all) == 0 {
			return count, nil
		}
		ctx = context.WithoutCancel(ctx) // it has begun
	}
}

// inPart returns why a change of so many hosts has failed, of which some are changed.
func inPart(change string, done, of int, err error) error {
	if done == 0 {
		return err
	}
	f := harp.FailureOf(err)
	f.Message = fmt.Sprintf("%d of %d hosts were %s before it failed: %s", done, of, change, f.Message)
	return &inPartError{f.Err(), err}
}

type inPartError struct{ failure, cause error }

func (e *inPartError) Error() string { return e.failure.Error() }

// Unwrap returns what is said of it, and why.
func (e *inPartError) Unwrap() []error { return []error{e.failure, e.cause} }

// storeLabels stores the labels of some hosts, which have them then.
func (d *Dispatcher) storeLabels(ctx context.Context, c store.DocumentChanges, some []relabelled, told harp.Event) error {
	for _, one := range some {
		if one.host.hasLostLabels() {
			var err error
			if one.old, err = d.storedDocument(ctx, labelKind, one.host.name); err != nil {
				return err
			}
		}
		c.Changes = append(c.Changes, store.DocumentChange{Kind: labelKind, Name: one.host.name, Old: one.old, New: one.new})
		told.Host = one.host.name
		c.Events = append(c.Events, told)
	}
	if _, err := d.store.ChangeDocuments(ctx, c); err != nil {
		return err
	}
	changed := make([]*host, len(some))
	for n, one := range some {
		one.host.setOperatorLabels(one.labels)
		changed[n] = one.host
	}
	d.reviewHolds(changed...)
	return nil
}

// labelChange is a change of labels as it is typed.
func labelChange(set map[string]string, unset []string) string {
	var words []string
	for _, key := range slices.Sorted(maps.Keys(set)) {
		words = append(words, key+"="+set[key])
	}
	for _, key := range unset {
		words = append(words, key+"-")
	}
	return strings.Join(words, " ")
}

// operatorLabels are those that operators have given the host. Nobody may change them.
func (h *host) operatorLabels() map[string]string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.operator
}

// setOperatorLabels says which labels operators have given the host.
func (h *host) setOperatorLabels(labels map[string]string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.operator, h.unlabelled = labels, false
	h.setAttributes()
}

// loseLabels notes that labels that operators have given the host cannot be read.
func (h *host) loseLabels() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.unlabelled = true
}

func (h *host) hasLostLabels() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.unlabelled
}

// labelSources says of each label of the host where it is from. The caller holds mu.
func (h *host) labelSources() map[string]harp.LabelSource {
	sources := map[string]harp.LabelSource{}
	for key := range h.row.Labels {
		sources[key] = harp.LabelOfAgent
	}
	if h.spec != nil {
		for key := range h.spec.Labels {
			sources[key] = harp.LabelOfRegistry
		}
	}
	for key := range h.operator {
		sources[key] = harp.LabelOfOperator
	}
	return sources
}

// labelProblem is of which host the labels cannot be read; nil: of none.
func (hs *hosts) labelProblem() error {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	first, count := "", 0
	for name, h := range hs.byName {
		if h.hasLostLabels() {
			if count++; first == "" || name < first {
				first = name
			}
		}
	}
	if count == 0 {
		return nil
	}
	return fmt.Errorf("the labels of %d hosts cannot be read, which are in all windows until they are labelled anew: the first is %s", count, first)
}

// LabelHosts implements harp.HostService.
func (s *service) LabelHosts(ctx context.Context, id, expr string, set map[string]string, unset []string) (int, error) {
	return requestChange(s, ctx, func(ctx context.Context) (int, error) {
		if err := harp.CheckLabelChange(set, unset); err != nil {
			return 0, err
		}
		op, err := s.puttingOperation(id, wire.TypeLabelHosts, append([]string{expr, string(encodeLabels(set))}, unset...))
		if err != nil {
			return 0, err
		}
		return s.d.labelHosts(ctx, op, expr, set, unset)
	})
}
