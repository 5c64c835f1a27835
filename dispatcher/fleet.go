package dispatcher

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/dispatcher/internal/inventory"
	"github.com/harpcaller/harp/target"
)

// matchedAtOnce is how many hosts a target is matched with before others have a turn.
const matchedAtOnce = 500

// fleet finds the hosts that targets select. Regular expressions in a target can take
// milliseconds a host, so that only one is matched at a time.
type fleet struct {
	hosts *hosts
	now   func() time.Time
	turn  sync.Mutex
}

// compileTarget reads a target. Errors: harp.ErrInvalid (target).
func (*fleet) compileTarget(text string) (*target.Matcher, error) {
	e, err := target.Parse(text)
	if err == nil {
		var m *target.Matcher
		if m, err = e.Compile(nil); err == nil {
			return m, nil
		}
	}
	return nil, &harp.FieldError{Field: "target", Message: strings.TrimPrefix(err.Error(), "target: ")}
}

// selectPage returns up to n hosts that a target selects, by name, from the one after the
// cursor. Errors: harp.ErrInvalid (target), harp.ErrNotFound, context.Cause.
func (f *fleet) selectPage(ctx context.Context, text, cursor string, n int) (page []*host, next string, err error) {
	m, err := f.compileTarget(text)
	if err != nil {
		return nil, "", err
	}
	names, only := m.Names()
	if cursor == "" {
		if err := f.checkNames(names); err != nil {
			return nil, "", err
		}
	}
	if only {
		page, next = f.namedPage(names, cursor, n)
		return page, next, nil
	}
	for from := cursor; ; {
		chunk, more := f.hosts.page(from, matchedAtOnce)
		selected, err := f.selectAmong(ctx, m, chunk)
		if err != nil {
			return nil, "", err
		}
		for _, h := range selected {
			if len(page) == n {
				return page, page[n-1].name, nil
			}
			page = append(page, h)
		}
		if from = more; from == "" {
			break
		}
	}
	if len(page) == 0 && cursor == "" {
		return nil, "", noHostError(text)
	}
	return page, "", nil
}

// checkNames looks whether hosts are known. Errors: harp.ErrNotFound, which names them.
func (f *fleet) checkNames(names []string) error {
	const most = 5
	var unknown []string
	for _, name := range names {
		if f.hosts.findKnown(name) == nil {
			unknown = append(unknown, name)
		}
	}
	if len(unknown) == 0 {
		return nil
	}
	listed := strings.Join(unknown[:min(len(unknown), most)], ", ")
	if n := len(unknown) - most; n > 0 {
		listed += fmt.Sprintf(" and %d more", n)
	}
	return harp.NotFound("host", listed)
}

// namedPage returns up to n of the hosts of these names, which are sorted, from the one
// after the cursor.
func (f *fleet) namedPage(names []string, cursor string, n int) (page []*host, next string) {
	for _, name := range names {
		if name <= cursor && cursor != "" {
			continue
		}
		if len(page) == n {
			return page, page[n-1].name
		}
		if h := f.hosts.findKnown(name); h != nil {
			page = append(page, h)
		}
	}
	return page, ""
}

func noHostError(text string) error {
	const most = 200
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "…"
	}
	failure := harp.NewFailure("not_found", "no host is selected by "+text)
	failure.Type = "target"
	return failure.Err()
}

// selectAmong returns those of some hosts that a target selects, when it has its turn.
func (f *fleet) selectAmong(ctx context.Context, m *target.Matcher, hosts []*host) (selected []*host, err error) {
	err = f.look(ctx, hosts, func(t *inventory.Table) {
		for _, i := range m.Select(t) {
			selected = append(selected, hosts[i])
		}
	})
	return selected, err
}

// look lets use look at some hosts, one use at a time. Errors: context.Cause.
func (f *fleet) look(ctx context.Context, hosts []*host, use func(*inventory.Table)) error {
	f.turn.Lock()
	defer f.turn.Unlock()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	now := f.now()
	seen := make([]inventory.Host, len(hosts))
	for i, h := range hosts {
		seen[i] = h.lookAt(now)
	}
	use(inventory.NewTable(seen))
	return nil
}

// explain says what each part of a target selects: of all hosts, or of one. Errors:
// harp.ErrInvalid (target), harp.ErrNotFound (the host), context.Cause.
func (f *fleet) explain(ctx context.Context, text, name string) (explained target.Node, err error) {
	m, err := f.compileTarget(text)
	if err != nil {
		return target.Node{}, err
	}
	if name != "" {
		h := f.hosts.findKnown(name)
		if h == nil {
			return target.Node{}, harp.NotFound("host", name)
		}
		err = f.look(ctx, []*host{h}, func(t *inventory.Table) { explained = m.Explain(t.Host(0)) })
		return explained, err
	}
	for from, first := "", true; first || from != ""; first = false {
		chunk, next := f.hosts.page(from, matchedAtOnce)
		err := f.look(ctx, chunk, func(t *inventory.Table) {
			counted := m.Count(t)
			if first {
				explained = counted
				return
			}
			addCounts(&explained, counted)
		})
		if err != nil {
			return target.Node{}, err
		}
		from = next
	}
	return explained, nil
}

// addCounts adds the counts of other hosts to those of the same parts.
func addCounts(to *target.Node, n target.Node) {
	to.Hosts += n.Hosts
	for i := range to.Parts {
		addCounts(&to.Parts[i], n.Parts[i])
	}
}

// ListHosts implements harp.HostService.
func (s *service) ListHosts(ctx context.Context, text, cursor string) (harp.Page[harp.HostStatus], error) {
	type page = harp.Page[harp.HostStatus]
	return request(s, ctx, func(ctx context.Context) (page, error) {
		var hosts []*host
		var out page
		var err error
		if text == "" {
			hosts, out.Cursor = s.d.hosts.page(cursor, pageSize)
		} else if hosts, out.Cursor, err = s.d.fleet.selectPage(ctx, text, cursor, pageSize); err != nil {
			return page{}, err
		}
		for _, h := range hosts {
			out.Items = append(out.Items, h.status())
		}
		return out, nil
	})
}

// ExplainTarget implements harp.HostService.
func (s *service) ExplainTarget(ctx context.Context, text, host string) (target.Node, error) {
	return request(s, ctx, func(ctx context.Context) (target.Node, error) { return s.d.fleet.explain(ctx, text, host) })
}
