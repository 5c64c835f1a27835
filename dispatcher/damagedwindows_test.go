package dispatcher

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/harpcaller/harp"
	"github.com/harpcaller/harp/store"
	"github.com/harpcaller/harp/store/memory"
)

// damagedDocuments is a store whose documents of some kinds are damaged until they are changed.
type damagedDocuments struct {
	store.Store
	kinds []string
}

func (s damagedDocuments) ListDocuments(ctx context.Context, kind, cursor string, n int) ([]store.Document, string, error) {
	page, next, err := s.Store.ListDocuments(ctx, kind, cursor, n)
	if slices.Contains(s.kinds, kind) {
		for i := range page {
			page[i].Content = nil
		}
	}
	return page, next, err
}

// A damaged window, the window of a damaged group, and a damaged pause keep everything back, until they are deleted.
func TestDamagedWindows(t *testing.T) {
	for _, kind := range []string{windowKind, groupKind, pauseKind} {
		t.Run(kind, func(t *testing.T) {
			disk := memory.NewDisk()
			hosts := Config{Hosts: StaticHosts{{Name: "a"}, {Name: "b"}}}
			d, ctx := opened(t, memory.OpenDisk(disk, nil), hosts), t.Context()
			s := d.service(ada)
			err := errors.Join(s.PutGroup(ctx, harp.NewID(), "g", "a"), s.PutWindow(ctx, harp.NewID(), harp.Window{Name: "w", Target: "@g", Procedures: []string{"p"}, From: time.Now().Add(-time.Hour)}))
			if _, also := s.PauseHosts(ctx, harp.NewID(), "b", harp.HostPauseChange{Reason: "disk"}); err != nil || also != nil {
				t.Fatal(err, also)
			}
			d = opened(t, damagedDocuments{memory.OpenDisk(disk, nil), []string{kind}}, hosts)
			s = d.service(ada)
			may := func(host string) bool {
				v, err := s.JudgeStart(ctx, host, "p", time.Time{})
				if err != nil {
					t.Fatal(err)
				}
				return v.May
			}
			if may("a") || may("b") {
				t.Errorf("on a it may start: %t, on b: %t", may("a"), may("b"))
			}
			if told := d.windows.problem() != nil; told != (kind != pauseKind) {
				t.Errorf("Health says %v", d.windows.problem())
			}
			if err := s.DeleteWindow(ctx, harp.NewID(), "w"); err != nil {
				t.Error(err)
			}
			if _, err := s.PauseHosts(ctx, harp.NewID(), "*", harp.HostPauseChange{Unpause: true}); err != nil {
				t.Error(err)
			}
			if !may("a") || !may("b") {
				t.Errorf("then on a it may start: %t, on b: %t", may("a"), may("b"))
			}
		})
	}
}

// A damaged group that a window uses keeps no documents from being applied that are not about it, and some from being applied that make it one that no
// window may use.
func TestDocumentsBesideADamagedGroup(t *testing.T) {
	disk := memory.NewDisk()
	hosts := Config{Hosts: StaticHosts{{Name: "a"}}}
	s, ctx := opened(t, memory.OpenDisk(disk, nil), hosts).service(ada), t.Context()
	err := errors.Join(s.PutGroup(ctx, harp.NewID(), "g", "a"), s.PutWindow(ctx, harp.NewID(), harp.Window{Name: "w", Target: "@g", From: time.Now()}))
	if err != nil {
		t.Fatal(err)
	}
	d := opened(t, damagedDocuments{memory.OpenDisk(disk, nil), []string{groupKind}}, hosts)
	apply := func(name, text string) error {
		documents := []harp.Document{{Group: &harp.Group{Name: name, Target: text}}}
		_, err := d.service(ada).ApplyDocuments(ctx, harp.NewID(), "site", documents, harp.ApplyOptions{})
		return err
	}
	if err := apply("other", "a"); err != nil {
		t.Errorf("another group: %v", err)
	}
	if err := apply("g", "host.online=true"); !errors.Is(err, harp.ErrInvalid) {
		t.Errorf("the group, as what its hosts are at the moment: %v", err)
	}
	if err := errors.Join(apply("g", "a"), d.windows.problem()); err != nil {
		t.Errorf("the group: %v", err)
	}
}

// A host whose labels are damaged is in each window, until they are set anew.
func TestWindowsOfAHostWithDamagedLabels(t *testing.T) {
	for name, change := range map[string]struct {
		set   map[string]string
		unset []string
	}{"set": {map[string]string{"role": "web"}, nil}, "unset": {nil, []string{"role"}}} {
		t.Run(name, func(t *testing.T) {
			disk, ctx, hosts := memory.NewDisk(), t.Context(), Config{Hosts: StaticHosts{{Name: "a"}, {Name: "b"}}}
			s := opened(t, memory.OpenDisk(disk, nil), hosts).service(ada)
			_, err := s.LabelHosts(ctx, harp.NewID(), "a", map[string]string{"role": "db"}, nil)
			if also := s.PutWindow(ctx, harp.NewID(), harp.Window{Name: "w", Target: "role=db", From: time.Now().Add(-time.Hour)}); err != nil || also != nil {
				t.Fatal(err, also)
			}
			d := opened(t, damagedDocuments{memory.OpenDisk(disk, nil), []string{labelKind}}, hosts)
			s = d.service(ada)
			if err := d.Health(ctx).Checks["windows"]; err == nil || !strings.HasSuffix(err.Error(), " a") {
				t.Errorf("Health says %v", err)
			}
			may := func(host string) bool {
				v, err := s.JudgeStart(ctx, host, "p", time.Time{})
				if err != nil {
					t.Fatal(err)
				}
				return v.May
			}
			if may("a") || !may("b") {
				t.Errorf("on a it may start: %t, on b: %t", may("a"), may("b"))
			}
			if n, err := s.LabelHosts(ctx, harp.NewID(), "a", change.set, change.unset); n != 1 || err != nil {
				t.Errorf("to label it gives %d, %v", n, err)
			}
			if err := d.Health(ctx).Checks["windows"]; !may("a") || err != nil {
				t.Errorf("then it may start: %t, and Health says %v", may("a"), err)
			}
		})
	}
}

// TestAWindowOpenedHostsOfWhichNobodyKnowsWhetherTheyAreIn: where the target of a window with Only cannot be used, or the labels of a host cannot be
// read, its spans let nothing start there that another such window keeps back; outside of them it keeps back what it may be about.
func TestAWindowOpenedHostsOfWhichNobodyKnowsWhetherTheyAreIn(t *testing.T) {
	for _, kind := range []string{groupKind, labelKind} {
		t.Run(kind, func(t *testing.T) {
			disk, ctx, hosts := memory.NewDisk(), t.Context(), Config{Hosts: StaticHosts{{Name: "a"}, {Name: "b"}}}
			s, now := opened(t, memory.OpenDisk(disk, nil), hosts).service(ada), time.Now()
			_, err := s.LabelHosts(ctx, harp.NewID(), "a", map[string]string{"role": "db"}, nil)
			err = errors.Join(err, s.PutGroup(ctx, harp.NewID(), "g", "b and role=web"))
			for _, w := range []harp.Window{
				{Name: "closed", Target: "role=db", Only: true, Procedures: []string{"p", "r"}, From: now.Add(time.Hour), To: now.Add(2 * time.Hour)},
				{Name: "open", Target: "@g", Only: true, Procedures: []string{"p", "q"}, From: now.Add(-time.Hour), To: now.Add(time.Hour)},
				{Name: "other", Target: "@g", Only: true, Procedures: []string{"o"}, From: now.Add(time.Hour), To: now.Add(2 * time.Hour)},
			} {
				err = errors.Join(err, s.PutWindow(ctx, harp.NewID(), w))
			}
			if err != nil {
				t.Fatal(err)
			}
			d := opened(t, damagedDocuments{memory.OpenDisk(disk, nil), []string{kind}}, hosts)
			for procedure, want := range map[string]bool{"p": false, "q": true, "r": false, "o": false, "other": true} {
				v, err := d.service(ada).JudgeStart(ctx, "a", procedure, time.Time{})
				if err != nil {
					t.Fatal(err)
				}
				if v.May != want {
					t.Errorf("%s may start on a: %t, as %+v", procedure, v.May, v.Obstacles)
				}
			}
			for at, want := range map[time.Duration]bool{90 * time.Minute: false, 59 * time.Minute: false} { // no moment at which both are open
				if v, err := d.service(ada).JudgeStart(ctx, "a", "p", now.Add(at)); err != nil || v.May != want {
					t.Errorf("p may start on a after %v: %t, %v", at, v.May, err)
				}
			}
		})
	}
}
