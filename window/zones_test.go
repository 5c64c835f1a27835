package window

import (
	"testing"
	_ "time/tzdata"
)

// TestWindowsZones: each name that Windows gives is a zone of the database.
func TestWindowsZones(t *testing.T) {
	if len(windowsZones) < 250 {
		t.Errorf("there are %d names only", len(windowsZones))
	}
	for name, iana := range windowsZones {
		if loadZone(iana) == nil {
			t.Errorf("%s is %s, which is no zone", name, iana)
		}
	}
	z, err := newZones(CalendarOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"Romance Standard Time":                                     "Europe/Paris",
		"(UTC+01:00) Brussels, Copenhagen, Madrid, Paris":           "Europe/Paris",
		"(GMT-05:00) Eastern Time (US & Canada)":                    "America/New_York",
		"(UTC) Coordinated Universal Time":                          "Etc/UTC",
		"/mozilla.org/20050126_1/Europe/Madrid":                     "Europe/Madrid",
		"/softwarestudio.org/Tzfile/America/Argentina/Rio_Gallegos": "America/Argentina/Rio_Gallegos",
		"/a/UTC": "UTC",
	} {
		if got := z.search(name); got == nil || got.String() != want {
			t.Errorf("%s is %v, want %s", name, got, want)
		}
	}
	for _, name := range []string{"", "Nowhere", "/", "//", "/Nowhere/", "tzone://Microsoft/Custom", "Customized Time Zone", "(UTC+01:00)", "Europe", "Romance Standard Time "} {
		if got := z.search(name); got != nil {
			t.Errorf("%q is %v", name, got)
		}
	}
}
