package rows

import (
	"encoding/base64"

	"github.com/harpcaller/harp"
)

const (
	defaultPage = 100
	maxPage     = 1000
)

// pageLimit is how many things a page holds when so many are asked for.
func pageLimit(asked int) int {
	if asked <= 0 {
		return defaultPage
	}
	return min(asked, maxPage)
}

// A cursor is opaque to those who hold it: what it says, behind its checksum.

// makeCursor makes the cursor of a listing, of which kind says the sort.
func makeCursor(kind byte, says []byte) string {
	return base64.RawURLEncoding.EncodeToString(seal([]byte{kind}, says))
}

// openCursor is the inverse of makeCursor. Errors: harp.ErrInvalid.
func openCursor(kind byte, cursor string) ([]byte, error) {
	raw, err := base64.RawURLEncoding.DecodeString(cursor)
	if err != nil {
		return nil, badCursor()
	}
	says, err := unseal([]byte{kind}, raw)
	if err != nil {
		return nil, badCursor()
	}
	return says, nil
}

func badCursor() error {
	return &harp.FieldError{Field: "cursor", Message: "is not from this listing"}
}

// nameCursor is the cursor of a listing by name: the last name given.
func nameCursor(kind byte, last string) string { return makeCursor(kind, []byte(last)) }

// openNameCursor returns the name after which the page begins; "" for the first.
func openNameCursor(kind byte, cursor string) (string, error) {
	if cursor == "" {
		return "", nil
	}
	name, err := openCursor(kind, cursor)
	return string(name), err
}
