package target

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestCompareVersions: the order as it is documented, row by row.
func TestCompareVersions(t *testing.T) {
	for _, c := range []struct {
		a    string
		want int
		b    string
	}{
		{"1.9", -1, "1.10"},
		{"1.2", 0, "1.2.0"},
		{"v1.4", 0, "1.4"},
		{"6.1.0-9", -1, "6.1.0-18-amd64"},
		{"6.1.0", -1, "6.1.0-18"},
		{"1.2.0-rc1", -1, "1.2.0"},
		{"1.2~beta2", -1, "1.2"},
		{"9.9", -1, "1:1.0"},
		{"1.0a", 1, "1.0"},
		{"1.0a", 1, "1.0.0"},
		{"1.0.1", 1, "1.0a"},
		// What other orders get wrong.
		{"6.1.0-18-amd64", 1, "6.1.0"},
		{"5.15.0-91-generic", -1, "5.15.0-101-generic"},
		{"22.04.3 LTS", 1, "22.04.3"},
		{"22.04.3 LTS", -1, "22.04.4"},
		// A leading v, an epoch.
		{"V2", 0, "2"},
		{"vim", 1, "im"},
		{"v", 1, "1"[1:]},
		{"0:1.0", 0, "1.0"},
		{"1:1", -1, "2:0"},
		{"02:1", 0, "2:1"},
		{"10:1", 1, "9:2"},
		{"a:1", -1, "1:0"},
		{":1", 0, "1"},
		// Numbers of any length, with zeros before them.
		{"1.05", 0, "1.5"},
		{"99999999999999999999998", -1, "99999999999999999999999"},
		{"99999999999999999999999", -1, "100000000000000000000000"},
		// What separates.
		{"1.2-3", 0, "1_2+3"},
		{"1..2", 0, "1.2"},
		{"1a2", 0, "1.a.2"},
		// Zeros before a word, a tilde or nothing; those before a number stay.
		{"1.0.0.0", 0, "1"},
		{"0", 0, ""},
		{"1.0.0a", 0, "1a"},
		{"1.0~1", 0, "1~1"},
		{"1.0-rc1", 0, "1-rc1"},
		{"1.0.1", -1, "1.1"},
		{"1.0.0.1", -1, "1.0.1"},
		{"1.0.0.1", 1, "1"},
		{"1.0.2", 1, "1.0.0.3"},
		// Words before a release, in their order, and others.
		{"1~z", -1, "1alpha"},
		{"1~~", -1, "1~"},
		{"1~", -1, "1"},
		{"1alpha", -1, "1beta"},
		{"1beta", -1, "1dev"},
		{"1dev", -1, "1nightly"},
		{"1nightly", -1, "1pre"},
		{"1pre", -1, "1preview"},
		{"1preview", -1, "1rc"},
		{"1rc", -1, "1snapshot"},
		{"1snapshot", -1, "1"},
		{"1", -1, "1a"},
		{"1rd", 1, "1"},
		{"1RC2", 0, "1-rc.2"},
		{"1.RC2", -1, "1.rc10"},
		{"1Patch", 0, "1PATCH"},
		{"1a", -1, "1ab"},
		{"1ab", -1, "1b"},
		{"1z", -1, "1.1"},
		{"1é", 0, "1É"},
	} {
		if got := CompareVersions(c.a, c.b); got != c.want {
			t.Errorf("%q is at %d of %q, want %d", c.a, got, c.b, c.want)
		}
		if got := CompareVersions(c.b, c.a); got != -c.want {
			t.Errorf("%q is at %d of %q, want %d", c.b, got, c.a, -c.want)
		}
	}
}

func drawVersion(t *rapid.T) string {
	parts := rapid.SliceOfN(rapid.SampledFrom([]string{"0", "1", "2", "10", "00", "rc", "RC", "a", "beta", "~", ".", "-", ":", "v", "é"}), 0, 7).Draw(t, "version")
	text := ""
	for _, part := range parts {
		text += part
	}
	return text
}

// TestVersionsAreInOrder: any two versions are in one order, and so are any three.
func TestVersionsAreInOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := []string{drawVersion(t), drawVersion(t), drawVersion(t)}
		for _, a := range v {
			if CompareVersions(a, a) != 0 {
				t.Fatalf("%q is not equal to itself", a)
			}
			for _, b := range v {
				if CompareVersions(a, b) != -CompareVersions(b, a) {
					t.Fatalf("%q and %q: %d and %d", a, b, CompareVersions(a, b), CompareVersions(b, a))
				}
			}
		}
		slices.SortFunc(v, CompareVersions)
		ab, bc, ac := CompareVersions(v[0], v[1]), CompareVersions(v[1], v[2]), CompareVersions(v[0], v[2])
		if ab > 0 || bc > 0 || ac > 0 || (ac == 0) != (ab == 0 && bc == 0) {
			t.Fatalf("%q: %d, %d, and first to last %d", v, ab, bc, ac)
		}
	})
}

// TestCompareVersionsAllocatesNothing: it is done for each distinct value of a fact.
func TestCompareVersionsAllocatesNothing(t *testing.T) {
	if n := testing.AllocsPerRun(100, func() { CompareVersions("2:6.1.0-18-amd64~rc1", "2:6.1.0-18-amd64~rc2") }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
