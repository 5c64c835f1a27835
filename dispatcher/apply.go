package dispatcher

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/failures"
	"github.com/harpcaller/harp/internal/wire"
	"github.com/harpcaller/harp/store"
	"github.com/harpcaller/harp/target"
)

// ApplyDocuments implements harp.ScheduleService.
func (s *service) ApplyDocuments(ctx context.Context, id, managedBy string, documents []harp.Document, o harp.ApplyOptions) (harp.Applied, error) {
	return request(s, ctx, func(ctx context.Context) (harp.Applied, error) {
		if err := harp.CheckDocuments(managedBy, documents); err != nil {
			return harp.Applied{}, err
		}
		a := &application{service: s, managedBy: managedBy, documents: documents, options: o}
		if o.DryRun {
			return a.run(ctx, store.Operation{})
		}
		op, err := s.puttingOperation(id, wire.TypeApply, wire.NewApply("", managedBy, documents, o))
		if err != nil {
			return harp.Applied{}, err
		}
		return a.run(ctx, op)
	})
}

// application is documents that are being applied, what has to be stored for that, and what is to be done once it is.
type application struct {
	*service
	managedBy string
	documents []harp.Document
	options   harp.ApplyOptions

	groups           *groups        // as they will be
	targets          *target.Groups // of these
	windows          *windows       // likewise
	opened           map[string]openedWindow
	rules            []store.RetentionDocument
	changes          []harp.DocumentChange
	stored           store.DocumentChanges
	committed        []func()
	shown            int          // bytes of what is told of changed fields
	room             documentRoom // what schedules take, or give back, beside that of turns
	newNotifications int          // beside those that there are
}

// run applies the documents once for an operation, or says what that would change.
func (a *application) run(ctx context.Context, op store.Operation) (harp.Applied, error) {
	d := a.d
	endTurn, err := a.awaitChange(ctx)
	if err != nil {
		return harp.Applied{}, err
	}
	defer endTurn()
	select {
	case d.applying <- struct{}{}:
		defer func() { <-d.applying }()
	case <-ctx.Done():
		return harp.Applied{}, context.Cause(ctx)
	}
	if err := reserveAnswer(ctx, answerPrice); err != nil {
		return harp.Applied{}, err
	}
	if !a.options.DryRun {
		if count, done, err := d.changedBefore(ctx, op, "set of documents", a.managedBy); done || err != nil {
			return harp.Applied{Count: count}, err
		}
	}
	if err := a.openWindows(ctx); err != nil { // first: that may take long, and schedules go on meanwhile
		return harp.Applied{}, err
	}
	if !a.options.DryRun {
		names := a.scheduleNames()
		turns := a.withDependencies(names)
		if err := d.schedules.awaitTurns(ctx, turns); err != nil {
			return harp.Applied{}, err
		}
		defer d.schedules.endTurns(turns)
		for _, name := range names { // what takes long goes first: groups and windows are not kept waiting for it
			_, _, _ = d.settleForChange(ctx, name, true) // what cannot be settled is said when it is changed
		}
	}
	if err := d.notifications.lockGone(ctx, a.notificationNames()...); err != nil {
		return harp.Applied{}, err
	}
	defer d.notifications.changing.Unlock()
	d.windows.changing.Lock()
	defer d.windows.changing.Unlock()
	d.groups.changing.Lock()
	defer d.groups.changing.Unlock()
	d.schedules.changing.Lock()
	defer d.schedules.changing.Unlock()
	d.changingRules.Lock()
	defer d.changingRules.Unlock()
	if ctx.Err() != nil {
		return harp.Applied{}, context.Cause(ctx)
	}
	for _, plan := range []func(context.Context) error{a.readRules, a.checkManaged, a.planGroups, a.planWindows, a.planNotifications, a.planRules, a.checkUses, a.checkDependencies, a.planSchedules} {
		switch err := plan(ctx); {
		case err != nil && !a.options.DryRun:
			return harp.Applied{}, d.rememberRefusal(ctx, op, err)
		case err != nil:
			return harp.Applied{}, err
		}
	}
	slices.SortFunc(a.changes, func(x, y harp.DocumentChange) int {
		return cmp.Or(cmp.Compare(x.Kind, y.Kind), cmp.Compare(x.Name, y.Name))
	})
	if !a.options.DryRun {
		if err := a.commit(ctx, op); err != nil {
			return harp.Applied{}, err
		}
	}
	return harp.Applied{Count: len(a.changes), Changes: a.changes}, nil
}

// commit stores what is planned, also that it is nothing: asked again it must not change what others have applied since.
func (a *application) commit(ctx context.Context, op store.Operation) error {
	a.stored.Op, a.stored.Count = op, len(a.changes)
	if len(a.changes) > 0 {
		a.stored.Events = append(a.stored.Events, harp.Event{
			Type: harp.EventDocumentsApplied, Time: op.Time, By: a.who, Reason: a.managedBy + ": " + countActions(a.changes),
		})
	}
	if _, err := a.d.store.ChangeDocuments(ctx, a.stored); err != nil {
		if errors.Is(err, harp.ErrConflict) {
			for _, step := range a.stored.Steps {
				if step.Revision > 0 {
					err = errors.Join(err, a.d.rereadForLoop(step.Name))
				}
			}
		}
		return err
	}
	for _, do := range a.committed {
		do()
	}
	return nil
}

// countActions says how many things were made, changed and deleted.
func countActions(changes []harp.DocumentChange) string {
	count := map[harp.DocumentAction]int{}
	for _, c := range changes {
		count[c.Action]++
	}
	return fmt.Sprintf("%d made, %d changed, %d deleted", count[harp.DocumentMade], count[harp.DocumentChanged], count[harp.DocumentDeleted])
}

// note notes a change of something that may be there, unless it is none. Errors: harp.ErrConflict if another manages it.
func (a *application) note(d harp.Document, isThere bool, managedBy string, fields []harp.FieldChange) (changes bool, err error) {
	change := harp.DocumentChange{Kind: d.Kind(), Name: d.Name(), Action: harp.DocumentMade}
	if isThere {
		if managedBy != "" && managedBy != a.managedBy {
			return false, conflictOf(string(d.Kind()), fmt.Sprintf("%s %s is managed by %s", d.Kind(), d.Name(), managedBy))
		}
		change.Action, change.Fields = harp.DocumentChanged, fields
		if managedBy == "" {
			change.Fields = append(change.Fields, harp.FieldChange{Field: "managed_by", New: jsonText(a.managedBy)})
		}
		if len(change.Fields) == 0 {
			return false, nil
		}
	}
	for _, f := range change.Fields {
		a.shown += len(f.Field) + len(f.Old) + len(f.New)
	}
	if a.shown > wire.MaxPage {
		change.Fields = nil
	}
	a.changes = append(a.changes, change)
	return true, nil
}

func (a *application) noteDeleted(kind harp.DocumentKind, name string) {
	a.changes = append(a.changes, harp.DocumentChange{Kind: kind, Name: name, Action: harp.DocumentDeleted})
}

// errManaged is why somebody cannot put or delete by hand what is managed.
func errManaged(kind harp.DocumentKind, name, managedBy string) error {
	return conflictOf(string(kind), fmt.Sprintf("%s %s is managed by %s: change its document, and apply that", kind, name, managedBy))
}

// has reports whether there is a document of something.
func (a *application) has(kind harp.DocumentKind, name string) bool {
	return slices.ContainsFunc(a.documents, func(d harp.Document) bool { return d.Kind() == kind && d.Name() == name })
}

// checkManaged refuses that somebody manages more than a set may have: it could not be deleted in one commit. Errors: harp.ErrRefused.
func (a *application) checkManaged(context.Context) error {
	count := len(a.documents)
	if !a.options.Prune {
		given := map[harp.DocumentKind]map[string]bool{harp.ScheduleDocument: {}, harp.GroupDocument: {}, harp.WindowDocument: {}, harp.NotificationDocument: {}, harp.RetentionDocument: {}}
		for _, doc := range a.documents {
			given[doc.Kind()][doc.Name()] = true
		}
		for kind, names := range map[harp.DocumentKind][]string{
			harp.ScheduleDocument:     a.d.schedules.managedBy(a.managedBy),
			harp.GroupDocument:        a.d.groups.managedBy(a.managedBy),
			harp.WindowDocument:       a.d.windows.managedBy(a.managedBy),
			harp.NotificationDocument: a.d.notifications.managedBy(a.managedBy),
			harp.RetentionDocument:    managedRules(a.rules, a.managedBy),
		} {
			for _, name := range names {
				if !given[kind][name] {
					count++
				}
			}
		}
	}
	if count > harp.MaxDocuments {
		return failures.New("refused", fmt.Sprintf("%s would manage %d documents, at most %d: prune those that are over", a.managedBy, count, harp.MaxDocuments)).Err()
	}
	return nil
}

// planGroups plans what becomes of groups. They are looked at as they will be, since they may use one another.
func (a *application) planGroups(ctx context.Context) error {
	a.groups = a.d.groups.clone()
	if a.options.Prune {
		for _, name := range a.groups.managedBy(a.managedBy) {
			if a.has(harp.GroupDocument, name) {
				continue
			}
			a.noteDeleted(harp.GroupDocument, name)
			a.groups.remove(name)
			if err := a.storeDocument(ctx, groupKind, name, nil, harp.Event{Type: harp.EventGroupChanged, Reason: name}); err != nil {
				return err
			}
		}
	}
	var changed []int
	for i, doc := range a.documents {
		if doc.Group == nil {
			continue
		}
		changes, err := a.planGroup(ctx, doc)
		if err != nil {
			return err
		}
		if changes {
			changed = append(changed, i)
		}
	}
	a.targets = target.NewGroups(a.groups.texts())
	for _, i := range changed {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		g := a.groups.byName[a.documents[i].Group.Name]
		var err error
		if g.uses, err = checkGroup(g.Group, a.targets); err != nil {
			return harp.InDocument(i, err)
		}
		a.groups.byName[g.Name] = g
	}
	return nil
}

// planGroup plans what becomes of the group of a document, of which nothing else is looked at yet, and reports whether it changes.
func (a *application) planGroup(ctx context.Context, doc harp.Document) (changes bool, err error) {
	g := harp.Group{Name: doc.Group.Name, Target: doc.Group.Target, Changed: a.d.now().UTC(), By: a.who, ManagedBy: a.managedBy}
	old, isThere := a.groups.byName[g.Name]
	var fields []harp.FieldChange
	if old.Target != g.Target {
		fields = []harp.FieldChange{{Field: "target", Old: cutText(jsonText(old.Target)), New: cutText(jsonText(g.Target))}}
	}
	if changes, err = a.note(doc, isThere, old.ManagedBy, fields); err != nil || !changes {
		return false, err
	}
	if err := a.groups.checkRoom(g); err != nil {
		return false, err
	}
	a.groups.set(group{Group: g})
	return true, a.storeDocument(ctx, groupKind, g.Name, wire.Encode(g), harp.Event{Type: harp.EventGroupChanged, Reason: g.Name})
}

// storeDocument plans that a document is stored in the place of what is stored of its name, nil: none, and an event of it.
func (a *application) storeDocument(ctx context.Context, kind, name string, content []byte, told harp.Event) error {
	old, err := a.d.storedDocument(ctx, kind, name)
	if err != nil {
		return err
	}
	told.Time, told.By = a.d.now(), a.who
	a.stored.Changes = append(a.stored.Changes, store.DocumentChange{Kind: kind, Name: name, Old: old, New: content})
	a.stored.Events = append(a.stored.Events, told)
	return nil
}

// checkUses refuses groups that are gone and used, and windows that cannot use theirs any more.
func (a *application) checkUses(context.Context) error {
	gone, changed := map[string]bool{}, map[string]bool{}
	for _, c := range a.changes {
		switch {
		case c.Kind != harp.GroupDocument:
		case c.Action == harp.DocumentDeleted:
			gone[c.Name] = true
		default:
			changed[c.Name] = true
		}
	}
	if group, user := a.groups.userOf(gone); user != "" {
		return errGroupUsed(group, harp.GroupDocument, user)
	}
	if group, user := a.windows.userOf(gone); user != "" {
		return errGroupUsed(group, harp.WindowDocument, user)
	}
	if group, user := a.d.notifications.userOf(gone, a.changedNotifications()); user != "" {
		return errGroupUsed(group, harp.NotificationDocument, user)
	}
	for i, doc := range a.documents { // of one that stays as it is nothing else is looked at
		if len(gone) > 0 && doc.Schedule != nil && usedGroup(doc.Schedule.Request.Target, gone) != "" {
			return harp.InDocument(i, a.checkTarget(doc.Schedule.Request.Target))
		}
	}
	if len(a.changes) == 0 {
		return nil
	}
	a.committed = append(a.committed, func() {
		a.d.groups.replace(a.groups)
		a.d.windows.replace(a.windows)
		a.d.reviewAllHolds()
		signal(a.d.windows.changed)
	})
	return a.windows.checkGroups(changed, a.targets)
}

// scheduleNames are the schedules of documents, and those that are to be deleted, by name.
func (a *application) scheduleNames() []string {
	var names []string
	for _, doc := range a.documents {
		if doc.Schedule != nil {
			names = append(names, doc.Schedule.Name)
		}
	}
	if a.options.Prune {
		names = append(names, a.d.schedules.managedBy(a.managedBy)...)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// withDependencies adds to schedules, in the order of their names, those that documents have them come after.
func (a *application) withDependencies(names []string) []string {
	names = slices.Clone(names)
	for _, doc := range a.documents {
		if doc.Schedule != nil {
			names = append(names, dependencyNames(doc.Schedule)...)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// checkDependencies refuses what schedules cannot come after as they will be. Errors: harp.ErrInvalid, naming the field, harp.ErrConflict where
// one that others come after is deleted, harp.ErrRefused.
func (a *application) checkDependencies(ctx context.Context) error {
	all := a.d.schedules.dependencies()
	for _, doc := range a.documents {
		if doc.Schedule != nil {
			all[doc.Schedule.Name] = dependencyNames(doc.Schedule)
		}
	}
	var gone []string
	if a.options.Prune {
		for _, name := range a.d.schedules.managedBy(a.managedBy) {
			if !a.has(harp.ScheduleDocument, name) {
				delete(all, name)
				gone = append(gone, name)
			}
		}
	}
	counts := all.counts()
	for i, doc := range a.documents {
		if doc.Schedule == nil {
			continue
		}
		if err := all.check(doc.Schedule.Name, counts); err != nil {
			return harp.InDocument(i, err)
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	for _, name := range gone {
		if err := all.checkDeleted(name); err != nil {
			return err
		}
	}
	return nil
}

// planSchedules plans what becomes of schedules, whose turns are the application's unless it is a dry run.
func (a *application) planSchedules(ctx context.Context) error {
	if a.options.Prune {
		for _, name := range a.d.schedules.managedBy(a.managedBy) {
			if !a.has(harp.ScheduleDocument, name) {
				a.planDeletion(ctx, name)
			}
		}
	}
	for i, doc := range a.documents {
		if doc.Schedule == nil {
			continue
		}
		if err := a.planSchedule(ctx, doc); err != nil {
			return harp.InDocument(i, err)
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	return nil
}

// planDeletion plans that a schedule is deleted, which gives back its room.
func (a *application) planDeletion(ctx context.Context, name string) {
	is, _ := a.d.schedules.find(name)
	if !a.options.DryRun {
		var now time.Time
		if is, now, _ = a.d.settleForChange(ctx, name, true); is != nil {
			a.plan(is, a.d.deleting(is, a.who, now))
		}
	}
	if is != nil {
		a.noteDeleted(harp.ScheduleDocument, name)
		a.room.add(documentRoom{-1, -len(is.document)})
	}
}

// planSchedule plans what becomes of the schedule of a document.
func (a *application) planSchedule(ctx context.Context, doc harp.Document) error {
	d := a.d
	sch := *doc.Schedule
	if sch.From, sch.Until = sch.From.UTC(), sch.Until.UTC(); len(sch.After) == 0 {
		sch.TZ = cmp.Or(sch.TZ, d.cfg.TimeZone)
	}
	old, _ := d.schedules.find(sch.Name) // nil: there is none
	put := putSchedule{Schedule: sch, By: a.who, Changed: d.now().UTC(), ManagedBy: a.managedBy, SecretArgs: d.secretsOf(&sch, old)}
	if err := checkGivenSecrets(&sch.Request, put.SecretArgs); err != nil {
		return err
	}
	var fields []harp.FieldChange
	managedBy := ""
	if old != nil {
		var err error
		if fields, err = scheduleChanges(old, &put, d.knownSecrets(old)...); err != nil {
			return err
		}
		if managedBy = old.ManagedBy; old.err != nil {
			fields = append(fields, harp.FieldChange{Field: "error", Old: jsonText(old.err.Error())})
		}
	}
	if changes, err := a.note(doc, old != nil, managedBy, fields); err != nil || !changes {
		return err
	}
	spec, err := d.readPut(&put, a.checkTarget, d.now())
	if err != nil {
		return err
	}
	if a.options.DryRun {
		takes, err := d.schedules.checkRoom(sch.Name, a.who, len(wire.Encode(put)), a.room)
		a.room.add(takes)
		return err
	}
	is, now, unsettled := d.settleForChange(ctx, sch.Name, true)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	step, err := d.puttingSchedule(is, put, spec, a.room, now)
	switch {
	case unsettled != nil && errors.Is(err, harp.ErrNoSpace):
		return unsettled
	case err != nil:
		return err
	}
	a.plan(is, step)
	return nil
}

// checkTarget refuses a target that cannot be used with groups as they will be. Errors: harp.ErrInvalid (target).
func (a *application) checkTarget(text string) error {
	_, err := compileTarget(text, a.targets)
	return err
}

// plan plans a step of a schedule, nil if it is new.
func (a *application) plan(is *scheduled, step *store.ScheduleStep) {
	a.stored.Steps = append(a.stored.Steps, *step)
	a.committed = append(a.committed, func() { a.d.noteStep(is, step, step.Revision+1) })
}
