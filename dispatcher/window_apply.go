package dispatcher

import (
	"cmp"
	"context"
	"fmt"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/internal/failures"
	"github.com/harpcaller/harp/internal/wire"
)

// openedWindow is a window that was read, or why it cannot be.
type openedWindow struct {
	window *openWindow
	err    error
}

// openWindows reads the windows that may change, before anything waits for the application: to read a calendar takes a while, and
// to fetch one longer. What is wrong with one is said when it is planned. Errors: harp.ErrRefused where all of them together are too
// much; ctx's.
func (a *application) openWindows(ctx context.Context) error {
	a.opened = map[string]openedWindow{}
	size := 0
	for _, doc := range a.documents {
		if doc.Window == nil {
			continue
		}
		w, old, fields, err := a.windowChange(*doc.Window)
		if err != nil || old != nil && len(fields) == 0 && old.ManagedBy == a.managedBy {
			continue
		}
		var one openedWindow
		one.window, one.err = a.openWindow(ctx, w, a.d.now())
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if one.err == nil && one.window.Copy != nil {
			size += len(one.window.Copy.Content)
		}
		if size > maxWindowBytes {
			return failures.New("refused", fmt.Sprintf("windows may have at most %d bytes in total", maxWindowBytes)).Err()
		}
		if a.opened[w.Name] = one; one.err != nil {
			return nil // the set is refused for it: no other server is waited for
		}
	}
	return nil
}

// planWindows plans what becomes of windows.
func (a *application) planWindows(ctx context.Context) error {
	a.windows = a.d.windows.clone()
	if a.options.Prune {
		for _, name := range a.windows.managedBy(a.managedBy) {
			if a.has(harp.WindowDocument, name) {
				continue
			}
			a.noteDeleted(harp.WindowDocument, name)
			a.windows.remove(name)
			if err := a.storeDocument(ctx, windowKind, name, nil, harp.Event{Type: harp.EventWindowDeleted, Window: name}); err != nil {
				return err
			}
		}
	}
	for i, doc := range a.documents {
		if doc.Window == nil {
			continue
		}
		if err := a.planWindow(ctx, doc); err != nil {
			return harp.InDocument(i, err)
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	return nil
}

// planWindow plans what becomes of the window of a document.
func (a *application) planWindow(ctx context.Context, doc harp.Document) error {
	w, old, fields, err := a.windowChange(*doc.Window)
	if err != nil {
		return err
	}
	managedBy := ""
	if old != nil {
		managedBy = old.ManagedBy
	}
	if changes, err := a.note(doc, old != nil, managedBy, fields); err != nil || !changes {
		return err
	}
	one, isOpen := a.opened[w.Name]
	if !isOpen {
		return conflictOf("window", "window "+w.Name+" was changed meanwhile: apply again")
	}
	to := one.window
	if one.err != nil {
		return one.err
	}
	if _, err := checkWindowTarget(w.Target, a.targets); err != nil {
		return err
	}
	to.ManagedBy = a.managedBy
	content := wire.Encode(to.windowDocument)
	to.size = len(content)
	if err := a.windows.checkRoom(to); err != nil {
		return err
	}
	a.windows.set(to)
	return a.storeDocument(ctx, windowKind, w.Name, content, harp.Event{Type: harp.EventWindowChanged, Window: w.Name, Reason: w.Reason})
}

// windowChange returns a window as it will be, the one that is there, nil if none is, and in which fields they differ.
func (a *application) windowChange(w harp.Window) (is harp.Window, old *openWindow, fields []harp.FieldChange, err error) {
	w.From, w.To = w.From.UTC(), w.To.UTC()
	if w.From.IsZero() {
		w.TZ = cmp.Or(w.TZ, a.d.cfg.TimeZone)
	}
	if old, _ = a.d.windows.find(w.Name); old == nil {
		return w, nil, nil, nil
	}
	fields, err = windowChanges(old.Window, w)
	if old.err != nil {
		fields = append(fields, harp.FieldChange{Field: "error", Old: jsonText(old.err.Error())})
	}
	return w, old, fields, err
}
