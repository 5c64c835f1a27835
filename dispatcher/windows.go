package dispatcher

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/failures"
	"github.com/harpcaller/harp/internal/when"
	"github.com/harpcaller/harp/internal/wire"
	"github.com/harpcaller/harp/store"
	"github.com/harpcaller/harp/target"
	"github.com/harpcaller/harp/window"
)

// Windows are documents of the store, and all in memory.
const windowKind = "window"

// windows are the maintenance windows there are, and the gates that are made of them.
type windows struct {
	changing sync.Mutex    // one change of windows at a time, and of groups, which their targets use
	stale    chan struct{} // gates are to be made anew
	changed  chan struct{} // other windows may be open

	mu     sync.RWMutex // guards what follows
	byName map[string]*openWindow
	size   int              // bytes of documents
	lost   map[string]error // why the targets of windows cannot be used, by their names: they are on all hosts

	gates gates
}

func newWindows() *windows {
	return &windows{stale: make(chan struct{}, 1), changed: make(chan struct{}, 1), byName: map[string]*openWindow{}}
}

// windowDocument is what is stored of a window.
type windowDocument struct {
	Window  harp.Window    `msgpack:"window"`
	By      harp.Principal `msgpack:"by"`
	Changed time.Time      `msgpack:"changed"`

	ManagedBy string `msgpack:"managed,omitempty"` // who applies its document; "": it was put by hand

	Copy *calendarCopy `msgpack:"copy,omitempty"` // what was fetched of its calendar; nil: that has no URL
}

// openWindow is a window as it is evaluated.
type openWindow struct {
	windowDocument
	size   int // of its document
	window window.Window
	err    error // why it cannot be told when it is, or where: it keeps back everything that it may concern

	asked    time.Time // when its calendar was fetched last; zero: not since the dispatcher was opened
	storedAt time.Time // Copy.At as it is stored
}

// always is a source of one span that covers every moment.
var always = window.Once{From: time.Unix(0, 0)}

// newOpenWindow makes of a document what is evaluated. Its err is a *harp.FieldError.
func newOpenWindow(doc windowDocument, size int) *openWindow {
	w := &doc.Window
	is := &openWindow{windowDocument: doc, size: size, window: window.Window{
		Name: w.Name, Mode: window.Mode(w.Mode), Only: w.Only, SchedulesOnly: w.SchedulesOnly,
		Procedures: w.Procedures, Exempt: w.Exempt, All: w.All,
	}}
	var fetched []byte
	if doc.Copy != nil {
		fetched, is.storedAt = doc.Copy.Content, doc.Copy.At
	}
	if is.window.Source, is.err = when.WindowSource(w, fetched); is.err == nil {
		if _, err := target.Parse(w.Target); err != nil {
			is.err = targetError(err)
		}
	}
	if is.err != nil {
		is.window.Source, is.window.Only = always, false
	}
	return is
}

// checkFuture refuses a window that is never from now on. Errors: *harp.FieldError.
func (w *openWindow) checkFuture(now time.Time) error {
	if source, ok := w.window.Source.(interface{ Check(now time.Time) error }); ok {
		if err := source.Check(now); err != nil {
			return when.FieldError(err)
		}
	}
	spans := w.window.Expand(now.Add(-gatesBehind), now.Add(gatesAhead))
	gate := window.NewGate(time.Time{}, now.Add(gatesAhead), []*window.Expanded{spans}, nil)
	if gate.KnownUntil().Before(now.Add(2 * gatesRenewed)) {
		field := "calendar"
		if w.Window.Calendar == nil {
			field = "cron"
		}
		return &harp.FieldError{Field: field, Message: "has so many spans that the next hours cannot be told"}
	}
	return nil
}

// isOver reports whether the window keeps nothing back from a moment on.
func (w *openWindow) isOver(from time.Time) bool {
	return w.err == nil && !w.window.Only && !w.Window.To.IsZero() && !w.Window.To.After(from)
}

// momentary are what a host is at the moment: windows are about hosts, and known a day ahead.
var momentary = []string{"host.online", "host.heard", "host.paused", "host.drift"}

// checkWindowTarget refuses a target that cannot be used, or asks what a host is at the moment, by its groups too. It returns
// its weight. Errors: harp.ErrInvalid (target).
func checkWindowTarget(text string, groups *target.Groups) (weight int, err error) {
	e, err := target.Parse(text)
	if err != nil {
		return 0, targetError(err)
	}
	m, err := e.Compile(groups)
	if err != nil {
		return 0, targetError(err)
	}
	for name, e := range usedBy(e, groups) {
		of := ""
		if name != "" {
			of = " in group " + name
		}
		for _, key := range e.Keys() {
			if slices.Contains(momentary, key) || strings.HasPrefix(key, "host.drift.") {
				return 0, &harp.FieldError{Field: "target", Message: key + of + " is what a host is at the moment, and a window is about hosts"}
			}
		}
	}
	return max(m.Weight(), m.Cost()), nil
}

// usedBy yields a target, under "", and those of the groups that it uses, by others too, as far as these can be read.
func usedBy(e *target.Expr, groups *target.Groups) iter.Seq2[string, *target.Expr] {
	return func(yield func(string, *target.Expr) bool) {
		seen := map[string]bool{"": true}
		for names, exprs := []string{""}, []*target.Expr{e}; len(names) > 0; names, exprs = names[1:], exprs[1:] {
			if !yield(names[0], exprs[0]) {
				return
			}
			for _, name := range exprs[0].Groups() {
				if used, err := groups.Expr(name); err == nil && !seen[name] {
					seen[name] = true
					names, exprs = append(names, name), append(exprs, used)
				}
			}
		}
	}
}

// uses reports whether a target uses one of some groups, by others too.
func uses(text string, some map[string]bool, groups *target.Groups) bool {
	e, err := target.Parse(text)
	if err != nil {
		return false
	}
	for name := range usedBy(e, groups) {
		if some[name] {
			return true
		}
	}
	return false
}

// loadWindows reads the windows that are stored. One that cannot be read concerns everything.
func (d *Dispatcher) loadWindows(ctx context.Context) error {
	for cursor := ""; ; {
		page, next, err := d.store.ListDocuments(ctx, windowKind, cursor, 100)
		if err != nil {
			return fmt.Errorf("stored windows: %w", err)
		}
		for _, doc := range page {
			var w windowDocument
			err := decodeDocument(doc, &w)
			if err == nil && w.Window.Name != doc.Name {
				err = fmt.Errorf("what is stored of it is of window %q", w.Window.Name)
			}
			if err != nil {
				w = windowDocument{Window: harp.Window{Name: doc.Name, Target: "*", All: true}}
				d.windows.set(&openWindow{windowDocument: w, size: len(doc.Content), window: window.Window{Name: doc.Name, All: true, Source: always}, err: err})
				continue
			}
			d.windows.set(newOpenWindow(w, len(doc.Content)))
		}
		if cursor = next; cursor == "" {
			return nil
		}
	}
}

// find returns a window. Errors: harp.ErrNotFound.
func (ws *windows) find(name string) (*openWindow, error) {
	ws.mu.RLock()
	defer ws.mu.RUnlock()
	if w := ws.byName[name]; w != nil {
		return w, nil
	}
	return nil, failures.NotFound("window", name)
}

// all returns the windows, by name.
func (ws *windows) all() []*openWindow {
	ws.mu.RLock()
	defer ws.mu.RUnlock()
	list := make([]*openWindow, 0, len(ws.byName))
	for _, name := range slices.Sorted(maps.Keys(ws.byName)) {
		list = append(list, ws.byName[name])
	}
	return list
}

// page returns up to n windows by name, from the one after the cursor; of a name only that one.
func (ws *windows) page(name, cursor string, n int) (page []*openWindow, next string) {
	for _, w := range ws.all() {
		switch is := w.Window.Name; {
		case name != "" && is != name, is <= cursor:
			continue
		case len(page) == n:
			return page, page[n-1].Window.Name
		}
		page = append(page, w)
	}
	return page, ""
}

func (ws *windows) set(w *openWindow) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if old := ws.byName[w.Window.Name]; old != nil {
		ws.size -= old.size
	}
	ws.size += w.size
	ws.byName[w.Window.Name] = w
}

func (ws *windows) remove(name string) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if old := ws.byName[name]; old != nil {
		ws.size -= old.size
		delete(ws.byName, name)
	}
}

// clone returns windows that can be changed apart from these.
func (ws *windows) clone() *windows {
	ws.mu.RLock()
	defer ws.mu.RUnlock()
	return &windows{byName: maps.Clone(ws.byName), size: ws.size, lost: ws.lost}
}

// replace makes the windows those of others.
func (ws *windows) replace(others *windows) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	ws.byName, ws.size = others.byName, others.size
}

// room is what all take.
func (ws *windows) room() documentRoom {
	ws.mu.RLock()
	defer ws.mu.RUnlock()
	return documentRoom{len(ws.byName), ws.size}
}

// checkRoom refuses a window beyond what there may be. Errors: harp.ErrRefused.
func (ws *windows) checkRoom(w *openWindow) error {
	ws.mu.RLock()
	defer ws.mu.RUnlock()
	old, size := ws.byName[w.Window.Name], ws.size+w.size
	if old != nil {
		size -= old.size
	}
	switch {
	case old == nil && len(ws.byName) >= maxWindows:
		return failures.New("refused", fmt.Sprintf("there are %d windows, at most %d", len(ws.byName), maxWindows)).Err()
	case size > maxWindowBytes:
		return failures.New("refused", fmt.Sprintf("windows may have at most %d bytes in total", maxWindowBytes)).Err()
	}
	more := documentRoom{1, w.size}
	has := more
	for name, other := range ws.byName {
		switch {
		case other.By != w.By:
		case name == w.Window.Name:
			more.add(documentRoom{-1, -other.size})
		default:
			has.add(documentRoom{1, other.size})
		}
	}
	return checkHalf(w.By, "windows", has, more, documentRoom{maxWindows, maxWindowBytes})
}

// checkGroups refuses changed groups that windows use, by other groups too, and that ask what a host is at the moment, or are too much. groups
// are as they will be with them. Errors: harp.ErrInvalid (target), harp.ErrRefused.
func (ws *windows) checkGroups(changed map[string]bool, groups *target.Groups) error {
	sum := 0
	for _, w := range ws.all() {
		weight, err := checkWindowTarget(w.Window.Target, groups)
		var field *harp.FieldError
		if errors.As(err, &field) && w.err == nil && (ws.problemOf(w) == nil || uses(w.Window.Target, changed, groups)) { // else it could not be used before either
			field.Message = "window " + w.Window.Name + " uses it: " + field.Message
			return field
		}
		sum += weight
	}
	return checkWeight(sum)
}

// checkTarget refuses the target of a window that asks what a host is at the moment, or is too much beside those of the others. Errors:
// harp.ErrInvalid (target), harp.ErrRefused.
func (ws *windows) checkTarget(groups *target.Groups, w *openWindow) error {
	sum, err := checkWindowTarget(w.Window.Target, groups)
	if err != nil {
		return err
	}
	for _, other := range ws.all() {
		if other.Window.Name != w.Window.Name {
			weight, _ := checkWindowTarget(other.Window.Target, groups) // one that cannot be used weighs nothing
			sum += weight
		}
	}
	return checkWeight(sum)
}

// checkWeight bounds what the targets of all windows take, which each host is matched with. Errors: harp.ErrRefused.
func checkWeight(weight int) error {
	if weight <= maxWindowWeight {
		return nil
	}
	return failures.New("refused", fmt.Sprintf("the targets of windows may have at most %d names in total, with those of groups; another item counts as %d", maxWindowWeight, target.ItemWeight)).Err()
}

// setLost says of which windows the targets cannot be used, and why.
func (ws *windows) setLost(lost map[string]error) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	ws.lost = lost
}

// problemOf is why a window cannot be told; nil: it can.
func (ws *windows) problemOf(w *openWindow) error {
	if w.err != nil {
		return w.err
	}
	ws.mu.RLock()
	defer ws.mu.RUnlock()
	return ws.lost[w.Window.Name]
}

// managedBy are the windows that somebody manages, by name.
func (ws *windows) managedBy(who string) (names []string) {
	for _, w := range ws.all() {
		if w.ManagedBy == who {
			names = append(names, w.Window.Name)
		}
	}
	return names
}

// userOf returns the first window by name whose target names one of some groups, and which; "" if none does.
func (ws *windows) userOf(groups map[string]bool) (used, user string) {
	if len(groups) == 0 {
		return "", ""
	}
	for _, w := range ws.all() {
		if used := usedGroup(w.Window.Target, groups); used != "" {
			return used, w.Window.Name
		}
	}
	return "", ""
}

// problem is which windows cannot be told; nil: none.
func (ws *windows) problem() error {
	first, count := "", 0
	var why error
	for _, w := range ws.all() {
		if err := ws.problemOf(w); err != nil {
			if count++; why == nil {
				first, why = w.Window.Name, err
			}
		}
	}
	if why == nil {
		return nil
	}
	return fmt.Errorf("%d windows cannot be told, and keep back everything that they may concern: the first is %s: %w", count, first, why)
}

// deleteOldWindows deletes windows that were over at a time, and that nobody manages. They are in no gate. Errors: the store's.
func (d *Dispatcher) deleteOldWindows(ctx context.Context, before time.Time) error {
	for _, w := range d.windows.all() {
		if w.ManagedBy != "" || !w.isOver(before) {
			continue
		}
		if err := d.deleteOldWindow(ctx, w); err != nil {
			return err
		}
	}
	return nil
}

func (d *Dispatcher) deleteOldWindow(ctx context.Context, w *openWindow) error {
	d.windows.changing.Lock()
	defer d.windows.changing.Unlock()
	name := w.Window.Name
	if is, err := d.windows.find(name); err != nil || is != w { // it was put anew
		return nil //nolint:nilerr // it is gone
	}
	now := d.now()
	told := harp.Event{Type: harp.EventWindowDeleted, Time: now, Window: name, Reason: "it is over"}
	err := d.replaceDocument(ctx, store.Operation{Time: now}, windowKind, name, nil, told)
	if err == nil {
		d.windows.remove(name)
	}
	return err
}

// changeWindow makes a change of a window once, and gives hosts the gates that follow from it before it returns. is is nil if there
// is none of this name; the one that change returns takes its place, nil: none does.
func (d *Dispatcher) changeWindow(ctx context.Context, op store.Operation, name string, change func(is *openWindow) (*openWindow, error)) error {
	d.windows.changing.Lock()
	defer d.windows.changing.Unlock()
	if _, done, err := d.changedBefore(ctx, op, "window", name); done || err != nil {
		return err
	}
	is, _ := d.windows.find(name)
	var to *openWindow
	var err error
	if is != nil && is.ManagedBy != "" {
		err = errManaged(harp.WindowDocument, name, is.ManagedBy)
	} else {
		to, err = change(is)
	}
	if err != nil {
		return d.rememberRefusal(ctx, op, err)
	}
	told := harp.Event{Type: harp.EventWindowDeleted, Time: op.Time, Window: name, By: op.By}
	var content []byte
	if to != nil {
		content = wire.Encode(to.windowDocument)
		to.size = len(content)
		told.Type, told.Reason = harp.EventWindowChanged, to.Window.Reason
		if err := d.windows.checkRoom(to); err != nil {
			return err
		}
	}
	if err := d.replaceDocument(ctx, op, windowKind, name, content, told); err != nil {
		return err
	}
	if to != nil {
		d.windows.set(to)
	} else {
		d.windows.remove(name)
	}
	d.reviewAllHolds()
	signal(d.windows.changed)
	return nil
}
