package window

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/harpcaller/harp/schedule"
)

//go:generate go run ./internal/gen /usr/share/unicode/cldr/common/supplemental/windowsZones.xml windowszones.go

// zones finds the zones that a file names.
type zones struct {
	none    *time.Location            // of times that name none
	given   map[string]*time.Location // by who reads the file
	located map[string]string         // X-LIC-LOCATION by TZID, from the file
	known   map[string]*time.Location // that were found before
}

func newZones(o CalendarOptions) (*zones, error) {
	z := &zones{none: o.Zone, given: map[string]*time.Location{}, located: map[string]string{}, known: map[string]*time.Location{}}
	if z.none == nil {
		z.none = time.UTC
	}
	for _, id := range slices.Sorted(maps.Keys(o.Zones)) {
		loc, err := schedule.LoadZone(o.Zones[id])
		if err != nil || o.Zones[id] == "" {
			return nil, &FieldError{Field: "zones", Message: fmt.Sprintf("%q stands for %q, which is not a time zone such as Europe/Madrid", shorten(id), shorten(o.Zones[id]))}
		}
		z.given[id] = loc
	}
	return z, nil
}

// maxZones is how many zones a file may name. Each is looked for in the database.
const maxZones = 100

// find returns the zone that a property names.
func (z *zones) find(v value) (*time.Location, error) {
	if v.zone == "" {
		return z.none, nil
	}
	if loc, ok := z.given[v.zone]; ok {
		return loc, nil
	}
	loc, ok := z.known[v.zone]
	if !ok && len(z.known) == maxZones {
		return nil, v.errorf("is in zone %q, and the calendar names more than %d", shorten(v.zone), maxZones)
	}
	if !ok {
		loc = z.search(v.zone)
		z.known[v.zone] = loc
	}
	if loc == nil {
		return nil, v.errorf("zone %q is unknown: zones must say which of the time zone database it is", shorten(v.zone))
	}
	return loc, nil
}

// search tries all that programs write for a zone: its name, the name that Windows gives or shows, and a path that ends with
// its name; beside that a hint of the program where it defines the zone.
func (z *zones) search(id string) *time.Location {
	for _, name := range []string{id, z.located[id]} {
		if loc := loadZone(name); loc != nil {
			return loc
		}
		if windows, ok := windowsZones[withoutOffset(name)]; ok {
			return loadZone(windows)
		}
		if loc := loadPath(name); loc != nil {
			return loc
		}
	}
	return nil
}

// loadPath finds the zone whose name a path ends with: /freeassociation.sourceforge.net/Tzfile/America/Argentina/Buenos_Aires.
func loadPath(path string) *time.Location {
	if !strings.HasPrefix(path, "/") {
		return nil
	}
	parts := strings.Split(path, "/")
	for n := min(3, len(parts)-1); n > 0; n-- {
		if loc := loadZone(strings.Join(parts[len(parts)-n:], "/")); loc != nil {
			return loc
		}
	}
	return nil
}

func loadZone(name string) *time.Location {
	if name == "" {
		return nil
	}
	loc, err := schedule.LoadZone(name)
	if err != nil {
		return nil
	}
	return loc
}

// withoutOffset returns a name without the offset that Windows shows in front of it: (UTC+01:00) Brussels, Copenhagen, Madrid, Paris.
func withoutOffset(name string) string {
	if _, rest, ok := strings.Cut(name, ") "); ok && (strings.HasPrefix(name, "(UTC") || strings.HasPrefix(name, "(GMT")) {
		return rest
	}
	return name
}
