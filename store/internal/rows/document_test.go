package rows

import (
	"testing"

	"github.com/harpcaller/harp/store"
)

// TestDamagedDocumentIsListed damages documents: they are listed, so that whoever needs them knows that there are some.
func TestDamagedDocumentIsListed(t *testing.T) {
	e := newTrial()
	s := opened(t, e, Options{})
	for name, size := range map[string]int{"a": 1, "b": 0, "c": 3 * pieceSize, "d": 1} {
		if err := s.PutDocument(t.Context(), "k", name, make([]byte, size)); err != nil {
			t.Fatal(err)
		}
	}
	e.damage(s, documentKey("k", "a"))
	e.damage(s, pieceKey(documentKey("k", "c"), 1))
	var got []store.Document
	for cursor := ""; ; {
		page, next, err := s.ListDocuments(t.Context(), "k", cursor, 1)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, page...)
		if cursor = next; cursor == "" {
			break
		}
	}
	names := ""
	for _, doc := range got {
		if names += doc.Name; (doc.Content == nil) != (doc.Name == "a" || doc.Name == "c") {
			t.Errorf("of %s there are %d bytes, nil: %t", doc.Name, len(doc.Content), doc.Content == nil)
		}
	}
	if names != "abcd" {
		t.Errorf("listed are %s", names)
	}
	for _, name := range []string{"a", "c"} { // which can be put anew, or deleted
		if _, err := s.ChangeDocuments(t.Context(), store.DocumentChanges{Changes: []store.DocumentChange{{Kind: "k", Name: name}}}); err != nil {
			t.Errorf("to delete %s: %v", name, err)
		}
	}
}
