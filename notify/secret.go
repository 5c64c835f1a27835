package notify

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

const (
	secretPrefix = "whsec_"
	minSecret    = 24 // bytes, as Standard Webhooks has it
	maxSecret    = 64
	maxFile      = 1 << 10 // bytes of a file with a secret
)

// errSecret says what a file of a secret holds, and not what this one does.
var errSecret = fmt.Errorf("does not hold %s and %d to %d bytes as base64", secretPrefix, minSecret, maxSecret)

// readSecrets returns the keys that files of the folder of secrets hold now. Its errors name files, and tell nothing of what
// is in them.
func (w *Webhooks) readSecrets(names []string) (keys [][]byte, err error) {
	if len(names) < 1 || len(names) > webhookSecrets {
		return nil, fmt.Errorf("are %d, must be 1 or, while one is replaced, 2", len(names))
	}
	if w.secrets == "" {
		return nil, errors.New("cannot be read: the dispatcher's configuration names no folder of them")
	}
	folder, err := os.OpenRoot(w.secrets) // anew, as the folder may be replaced as a whole
	if err != nil {
		return nil, errors.New("cannot be read: the dispatcher's folder of them cannot be opened")
	}
	defer folder.Close()
	for _, name := range names {
		key, err := readSecret(folder, name)
		if err != nil {
			return nil, fmt.Errorf("%.64q: %w", name, err)
		}
		keys = append(keys, key)
	}
	return keys, nil
}

// readSecret returns the key in a file. A Root opens nothing outside of it, whatever links there are.
func readSecret(folder *os.Root, name string) ([]byte, error) {
	if name == "" || len(name) > 255 || name[0] == '.' || strings.ContainsAny(name, "/\\\x00") || !filepath.IsLocal(name) {
		return nil, errors.New("is no plain name of a file")
	}
	switch info, err := folder.Stat(name); { // before it is opened: opening a pipe would wait for who writes it
	case errors.Is(err, os.ErrNotExist):
		return nil, errors.New("there is no such file in the dispatcher's folder of secrets")
	case err != nil:
		return nil, errors.New("the file cannot be read")
	case !info.Mode().IsRegular():
		return nil, errors.New("is no file")
	}
	file, err := folder.Open(name)
	if err != nil {
		return nil, errors.New("the file cannot be read")
	}
	defer file.Close()
	content, err := io.ReadAll(io.LimitReader(file, maxFile+1))
	if err != nil {
		return nil, errors.New("the file cannot be read")
	}
	if len(content) > maxFile {
		return nil, errSecret
	}
	return parseSecret(strings.TrimSpace(string(content)))
}

// parseSecret returns the key of a secret. Its errors tell nothing of it.
func parseSecret(text string) ([]byte, error) {
	encoded, ok := strings.CutPrefix(text, secretPrefix)
	if !ok {
		return nil, errSecret
	}
	key, err := base64.StdEncoding.Strict().DecodeString(encoded)
	if err != nil || len(key) < minSecret || len(key) > maxSecret {
		return nil, errSecret
	}
	return key, nil
}

// sign sets the headers of Standard Webhooks: a signature by each key, of the id, the time of this try, and the body.
func sign(header http.Header, keys [][]byte, id string, now time.Time, body []byte) {
	at := strconv.FormatInt(now.Unix(), 10)
	signatures := make([]string, len(keys))
	for i, key := range keys {
		mac := hmac.New(sha256.New, key)
		_, _ = io.WriteString(mac, id+"."+at+".") // a hash takes all
		_, _ = mac.Write(body)
		signatures[i] = "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
	}
	header.Set("Webhook-Id", id)
	header.Set("Webhook-Timestamp", at)
	header.Set("Webhook-Signature", strings.Join(signatures, " "))
}
