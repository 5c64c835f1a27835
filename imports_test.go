package harp

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// TestImports: a program that imports harp compiles its nouns and nothing else. Protocols,
// databases, schemas, calendars, command lines and what tests need belong to other packages.
func TestImports(t *testing.T) {
	for pkg, allowed := range map[string][]string{
		".": {
			"github.com/google/uuid",
			"github.com/vmihailenco/msgpack/v5",
			"github.com/vmihailenco/tagparser/v2", // of msgpack
		},
		"./target":   {},
		"./schedule": {},
		"./window":   {},
		"./notify": {
			"github.com/google/uuid", // of the root, as the others
			"github.com/vmihailenco/msgpack/v5",
			"github.com/vmihailenco/tagparser/v2",
		},
	} {
		out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", "{{with .Module}}{{.Path}}{{end}}", pkg).Output()
		if err != nil {
			t.Fatal(err)
		}
		for module := range strings.FieldsSeq(string(out)) {
			if module != "github.com/harpcaller/harp" && !slices.Contains(allowed, module) {
				t.Errorf("package %s compiles %s", pkg, module)
			}
		}
	}
}

// TestDispatcherWithoutMail: who embeds a dispatcher compiles no mail; it is given as a notify.Sender.
func TestDispatcherWithoutMail(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "./dispatcher", "./client", "./agent", "./harptest").Output()
	if err != nil {
		t.Fatal(err)
	}
	for pkg := range strings.FieldsSeq(string(out)) {
		if strings.HasPrefix(pkg, "github.com/wneessen/go-mail") || pkg == "github.com/harpcaller/harp/notify/mail" {
			t.Errorf("who embeds a dispatcher compiles %s", pkg)
		}
	}
}

// TestLayers: the packages of this module that the root may know are those below it.
func TestLayers(t *testing.T) {
	allowed := []string{
		"github.com/harpcaller/harp",
		"github.com/harpcaller/harp/internal/duration",
		"github.com/harpcaller/harp/internal/msgpack",
		"github.com/harpcaller/harp/target",
	}
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	for pkg := range strings.FieldsSeq(string(out)) {
		if strings.HasPrefix(pkg, "github.com/harpcaller/harp") && !slices.Contains(allowed, pkg) {
			t.Errorf("the root package imports %s", pkg)
		}
	}
}
