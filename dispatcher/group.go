package dispatcher

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/failures"
	"github.com/harpcaller/harp/internal/wire"
	"github.com/harpcaller/harp/store"
	"github.com/harpcaller/harp/target"
	"github.com/harpcaller/harp/transport"
)

// Groups are documents of the store, and all in memory.
const groupKind = "group"

// groups are those there are.
type groups struct {
	changing sync.Mutex // one change at a time

	mu     sync.RWMutex     // guards what follows
	byName map[string]group // in use it is replaced, never changed: see texts
	size   int              // bytes of names and targets
}

// group is a group with the names of those that its target uses.
type group struct {
	harp.Group
	uses []string
}

func (g group) size() int { return len(g.Name) + len(g.Target) }

// errNoGroup is why a group cannot be used that there is not.
var errNoGroup = errors.New("no such group")

// clone returns groups that can be changed apart from these.
func (gs *groups) clone() *groups {
	gs.mu.RLock()
	defer gs.mu.RUnlock()
	return &groups{byName: maps.Clone(gs.byName), size: gs.size}
}

// replace makes the groups those of others.
func (gs *groups) replace(others *groups) {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	gs.byName, gs.size = others.byName, others.size
}

// texts returns what reads the targets of groups as all of them are now: a target that uses several means those of one moment, as
// they were changed together. Its errors: errNoGroup.
func (gs *groups) texts() func(name string) (string, error) {
	gs.mu.RLock()
	defer gs.mu.RUnlock()
	are := gs.byName
	return func(name string) (string, error) {
		g, found := are[name]
		if !found {
			return "", errNoGroup
		}
		return g.Target, nil
	}
}

// managerOf is who manages a group; "": nobody does.
func (gs *groups) managerOf(name string) string {
	gs.mu.RLock()
	defer gs.mu.RUnlock()
	return gs.byName[name].ManagedBy
}

// page returns up to n groups by name, from the one after the cursor; of a name only that one.
func (gs *groups) page(name, cursor string, n int) (page []harp.Group, next string) {
	gs.mu.RLock()
	defer gs.mu.RUnlock()
	if name != "" {
		if g, found := gs.byName[name]; found {
			page = append(page, g.Group)
		}
		return page, ""
	}
	for _, name := range slices.Sorted(maps.Keys(gs.byName)) {
		switch {
		case name <= cursor:
			continue
		case len(page) == n:
			return page, page[n-1].Name
		}
		page = append(page, gs.byName[name].Group)
	}
	return page, ""
}

// set puts a group in the place of the one of its name.
func (gs *groups) set(g group) {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	gs.size += g.size() - gs.byName[g.Name].size()
	gs.byName = maps.Clone(gs.byName)
	gs.byName[g.Name] = g
}

func (gs *groups) remove(name string) {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	gs.size -= gs.byName[name].size()
	gs.byName = maps.Clone(gs.byName)
	delete(gs.byName, name)
}

// room is what all take.
func (gs *groups) room() documentRoom {
	gs.mu.RLock()
	defer gs.mu.RUnlock()
	return documentRoom{len(gs.byName), gs.size}
}

// checkRoom refuses a group beyond what there may be. Errors: harp.ErrRefused.
func (gs *groups) checkRoom(g harp.Group) error {
	gs.mu.RLock()
	defer gs.mu.RUnlock()
	old, had := gs.byName[g.Name]
	switch {
	case !had && len(gs.byName) >= maxGroups:
		return failures.New("refused", fmt.Sprintf("there are %d groups, at most %d", len(gs.byName), maxGroups)).Err()
	case gs.size-old.size()+group{Group: g}.size() > maxGroupBytes:
		return failures.New("refused", fmt.Sprintf("groups may have at most %d bytes in total", maxGroupBytes)).Err()
	}
	more := documentRoom{1, group{Group: g}.size()}
	has := more
	for name, other := range gs.byName {
		switch {
		case other.By != g.By:
		case name == g.Name:
			more.add(documentRoom{-1, -other.size()})
		default:
			has.add(documentRoom{1, other.size()})
		}
	}
	return checkHalf(g.By, "groups", has, more, documentRoom{maxGroups, maxGroupBytes})
}

// managedBy are the groups that somebody manages, by name.
func (gs *groups) managedBy(who string) (names []string) {
	gs.mu.RLock()
	defer gs.mu.RUnlock()
	for name, g := range gs.byName {
		if g.ManagedBy == who {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// userOf returns the first group by name that uses one of some, and which; "" if none does.
func (gs *groups) userOf(some map[string]bool) (used, user string) {
	gs.mu.RLock()
	defer gs.mu.RUnlock()
	for _, user := range slices.Sorted(maps.Keys(gs.byName)) {
		if used := findUsed(gs.byName[user].uses, some); used != "" {
			return used, user
		}
	}
	return "", ""
}

// usedGroup returns which of some groups a target names; "" if none.
func usedGroup(text string, groups map[string]bool) string {
	e, err := target.Parse(text)
	if err != nil {
		return ""
	}
	return findUsed(e.Groups(), groups)
}

// findUsed returns the first name that is one of some; "" if none is.
func findUsed(uses []string, some map[string]bool) string {
	for _, name := range uses {
		if some[name] {
			return name
		}
	}
	return ""
}

// with returns the groups as they are with one more, or another in the place of the one of its name.
func (gs *groups) with(g harp.Group) *target.Groups {
	text := gs.texts()
	return target.NewGroups(func(name string) (string, error) {
		if name == g.Name {
			return g.Target, nil
		}
		return text(name)
	})
}

// checkGroup reads the target of a group, one of groups, and returns which groups it uses. Errors:
// harp.ErrInvalid (target).
func checkGroup(g harp.Group, groups *target.Groups) (uses []string, err error) {
	e, err := target.Parse(g.Target)
	if err != nil {
		return nil, targetError(err)
	}
	if _, err := e.Compile(groups); err != nil {
		return nil, targetError(err)
	}
	if _, err := compileTarget("@"+target.QuoteName(g.Name), groups); err != nil { // it is one deeper where it is used
		return nil, err
	}
	return e.Groups(), nil
}

// loadGroups reads the groups that are stored.
func (d *Dispatcher) loadGroups(ctx context.Context) error {
	for cursor := ""; ; {
		page, next, err := d.store.ListDocuments(ctx, groupKind, cursor, 100)
		if err != nil {
			return fmt.Errorf("stored groups: %w", err)
		}
		for _, doc := range page {
			var g harp.Group
			err := decodeDocument(doc, &g)
			if err == nil {
				var e *target.Expr
				if e, err = target.Parse(g.Target); err == nil {
					d.groups.set(group{g, e.Groups()})
					continue
				}
			}
			d.log.Error("group cannot be read", "group", doc.Name, "err", err)
		}
		if cursor = next; cursor == "" {
			return nil
		}
	}
}

// decodeDocument reads a document of a listing. Errors: store.ErrDamaged, of what is none of this kind.
func decodeDocument(doc store.Document, to any) error {
	if doc.Content == nil {
		return store.ErrDamaged
	}
	return wire.Decode(doc.Content, to)
}

// storedDocument returns a document; nil if there is none that can be read.
func (d *Dispatcher) storedDocument(ctx context.Context, kind, name string) ([]byte, error) {
	content, err := d.store.Document(ctx, kind, name)
	if errors.Is(err, harp.ErrNotFound) || errors.Is(err, store.ErrDamaged) {
		return nil, nil
	}
	return content, err
}

// What is remembered as the count of a change that was refused by how things were: asked again it must not change what others have put since.
const (
	wasMissing = -1 - iota
	wasOtherwise
	hadNoHosts
)

// changedBefore returns what came of a change of something if it was asked for before; false if it was not. Errors: what it was refused with, the store's.
func (d *Dispatcher) changedBefore(ctx context.Context, op store.Operation, noun, name string) (count int, done bool, err error) {
	count, done, err = d.store.DocumentsChanged(ctx, op)
	switch {
	case err != nil || !done:
	case count == wasMissing:
		return 0, true, failures.NotFound(noun, name)
	case count == wasOtherwise:
		return 0, true, conflictOf(noun, noun+" "+name+" was not as this needs it")
	case count == hadNoHosts:
		f := failures.New("not_found", "the target selected no hosts")
		f.Type = "target"
		return 0, true, f.Err()
	}
	return count, done, err
}

// rememberRefusal returns why a change is refused, once it is stored that it was because something was not there, or not as it had to be. Errors:
// the store's.
func (d *Dispatcher) rememberRefusal(ctx context.Context, op store.Operation, refused error) error {
	c := store.DocumentChanges{Op: op, Count: wasMissing}
	switch {
	case errors.Is(refused, harp.ErrConflict):
		c.Count = wasOtherwise
	case !errors.Is(refused, harp.ErrNotFound):
		return refused
	case harp.FailureOf(refused).Type == "target":
		c.Count = hadNoHosts
	}
	if _, err := d.store.ChangeDocuments(ctx, c); err != nil {
		return err
	}
	return refused
}

// replaceDocument stores a document in the place of what is stored of its name, nil: none, once for an operation.
func (d *Dispatcher) replaceDocument(ctx context.Context, op store.Operation, kind, name string, content []byte, told harp.Event) error {
	old, err := d.storedDocument(ctx, kind, name)
	if err != nil {
		return err
	}
	_, err = d.store.ChangeDocuments(ctx, store.DocumentChanges{
		Changes: []store.DocumentChange{{Kind: kind, Name: name, Old: old, New: content}}, Op: op, Events: []harp.Event{told},
	})
	return err
}

// storeGroup stores a group, or that there is none of its name any more.
func (d *Dispatcher) storeGroup(ctx context.Context, op store.Operation, name string, content []byte) error {
	return d.replaceDocument(ctx, op, groupKind, name, content, harp.Event{Type: harp.EventGroupChanged, Time: op.Time, Reason: name, By: op.By})
}

// putGroup stores a group that is good, once.
func (d *Dispatcher) putGroup(ctx context.Context, op store.Operation, g harp.Group) error {
	d.windows.changing.Lock()
	defer d.windows.changing.Unlock()
	d.groups.changing.Lock()
	defer d.groups.changing.Unlock()
	if _, done, err := d.changedBefore(ctx, op, "group", g.Name); done || err != nil {
		return err
	}
	with := d.groups.with(g)
	uses, err := checkGroup(g, with)
	if old := d.groups.managerOf(g.Name); err == nil && old != "" {
		err = errManaged(harp.GroupDocument, g.Name, old)
	}
	if err == nil {
		err = d.groups.checkRoom(g)
	}
	if err == nil {
		err = d.windows.checkGroups(map[string]bool{g.Name: true}, with)
	}
	if err != nil {
		return d.rememberRefusal(ctx, op, err)
	}
	if err := d.storeGroup(ctx, op, g.Name, wire.Encode(g)); err != nil {
		return err
	}
	d.groups.set(group{g, uses})
	d.reviewAllHolds()
	return nil
}

// deleteGroup deletes a group that no other and no window uses, once.
func (d *Dispatcher) deleteGroup(ctx context.Context, op store.Operation, name string) error {
	d.windows.changing.Lock()
	defer d.windows.changing.Unlock()
	d.groups.changing.Lock()
	defer d.groups.changing.Unlock()
	if _, done, err := d.changedBefore(ctx, op, "group", name); done || err != nil {
		return err
	}
	if err := d.checkGroupDeletable(name); err != nil {
		return d.rememberRefusal(ctx, op, err)
	}
	err := d.storeGroup(ctx, op, name, nil)
	if err == nil {
		d.groups.remove(name)
	}
	return err
}

// checkGroupDeletable refuses that a group is gone that nobody has put, that is managed, or that is used. Errors: harp.ErrNotFound, harp.ErrConflict.
func (d *Dispatcher) checkGroupDeletable(name string) error {
	if _, err := d.groups.texts()(name); err != nil {
		return failures.NotFound("group", name)
	}
	if by := d.groups.managerOf(name); by != "" {
		return errManaged(harp.GroupDocument, name, by)
	}
	gone := map[string]bool{name: true}
	if _, user := d.groups.userOf(gone); user != "" {
		return errGroupUsed(name, harp.GroupDocument, user)
	}
	if _, user := d.windows.userOf(gone); user != "" {
		return errGroupUsed(name, harp.WindowDocument, user)
	}
	if _, user := d.notifications.userOf(gone, nil); user != "" {
		return errGroupUsed(name, harp.NotificationDocument, user)
	}
	return nil
}

func errGroupUsed(name string, by harp.DocumentKind, user string) error {
	return conflictOf("group", fmt.Sprintf("group %s is used by %s %s", name, by, user))
}

// encodeAsked is by what a request is told from others: requests of two kinds may have the same content.
func encodeAsked(kind transport.Type, message any) []byte {
	return append([]byte{byte(kind)}, wire.Encode(message)...)
}

// documentsOperation is operation for a change of documents that is asked for by a message of a kind.
func (s *service) documentsOperation(id string, kind transport.Type, message any) (store.Operation, error) {
	op, err := s.uncountedOperation(id)
	if err == nil {
		op.Asked = encodeAsked(kind, message)
		op.Refused = s.d.principals.admitOperation(s.who, operationBytes+len(op.Asked))
	}
	return op, err
}

// puttingOperation is documentsOperation for what puts something there, of which a principal may have no more stored than of calls. Whoever
// has used that up can still pause, end and delete.
func (s *service) puttingOperation(id string, kind transport.Type, message any) (store.Operation, error) {
	op, err := s.uncountedOperation(id)
	if err == nil {
		op.Asked = encodeAsked(kind, message)
		op.Refused = s.d.principals.admitBytes(s.who, operationBytes+len(op.Asked))
	}
	return op, err
}

// ListGroups implements harp.GroupService.
func (s *service) ListGroups(ctx context.Context, name, cursor string) (harp.Page[harp.Group], error) {
	type page = harp.Page[harp.Group]
	return request(s, ctx, func(context.Context) (page, error) {
		items, next := s.d.groups.page(name, cursor, pageSize)
		return page{Items: items, Cursor: next}, nil
	})
}

// PutGroup implements harp.GroupService.
func (s *service) PutGroup(ctx context.Context, id, name, text string) error {
	_, err := requestChange(s, ctx, func(ctx context.Context) (none struct{}, err error) {
		g := harp.Group{Name: name, Target: text, Changed: s.d.now().UTC(), By: s.who}
		if err := g.Check(); err != nil {
			return none, err
		}
		op, err := s.puttingOperation(id, wire.TypePutGroup, wire.PutGroup{Name: name, Target: text})
		if err != nil {
			return none, err
		}
		return none, s.d.putGroup(ctx, op, g)
	})
	return err
}

// DeleteGroup implements harp.GroupService.
func (s *service) DeleteGroup(ctx context.Context, id, name string) error {
	_, err := requestChange(s, ctx, func(ctx context.Context) (none struct{}, err error) {
		op, err := s.documentsOperation(id, wire.TypeDeleteGroup, wire.DeleteGroup{Name: name})
		if err != nil {
			return none, err
		}
		return none, s.d.deleteGroup(ctx, op, name)
	})
	return err
}

// targetError is the error of a target that cannot be used: it names the place.
func targetError(err error) error {
	return &harp.FieldError{Field: "target", Message: strings.TrimPrefix(err.Error(), "target: ")}
}
