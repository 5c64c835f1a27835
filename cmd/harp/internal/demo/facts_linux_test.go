package demo

import "testing"

func TestHostFactsOfLinux(t *testing.T) {
	f, err := hostFacts(t.Context(), struct{}{})
	if err != nil {
		t.Fatal(err)
	}
	if f.Kernel.Release == "" || f.Memory.Total == 0 || len(f.Load) != 3 || f.Uptime == 0 || len(f.Disks) == 0 {
		t.Errorf("facts lack what Linux says: %+v", f)
	}
}

func TestUnescape(t *testing.T) {
	for in, want := range map[string]string{
		`/mnt/a\040b`:   "/mnt/a b",
		`/mnt/\134`:     `/mnt/\`,
		`/mnt/x\04`:     `/mnt/x\04`,
		`/mnt/\999end`:  `/mnt/\999end`,
		`/mnt/no\\back`: `/mnt/no\\back`,
	} {
		if got := unescape(in); got != want {
			t.Errorf("unescape(%q) = %q, want %q", in, got, want)
		}
	}
}
