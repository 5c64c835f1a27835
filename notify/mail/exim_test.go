package mail_test

import (
	"bufio"
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/harpcaller/harp/internal/needs"
	"github.com/harpcaller/harp/notify/mail"
)

// eximConfig is what exim needs to take mail for example.org from who logs in over TLS, and to put it into a file.
const eximConfig = `
exim_user = %[2]d
exim_group = %[3]d
never_users =
keep_environment =
primary_hostname = mail.example.org
spool_directory = %[1]s/spool
log_file_path = %[1]s/log_%%s
pid_file_path = %[1]s/pid
daemon_smtp_ports = %[4]d
local_interfaces = 127.0.0.1
disable_ipv6
tls_advertise_hosts = *
tls_certificate = %[1]s/cert.pem
tls_privatekey = %[1]s/key.pem
auth_advertise_hosts = ${if eq{$tls_in_cipher}{}{}{*}}
acl_smtp_rcpt = rcpt
acl_smtp_data = data
message_size_limit = 1M
queue_only
begin acl
rcpt:
  deny message = log in first
    ! authenticated = *
  deny message = no such user here
    local_parts = nobody
  defer message = come back later
    local_parts = later
  accept domains = example.org
  deny message = relay not permitted
data:
  deny message = virus
    condition = ${if match{$h_subject:}{virus}}
  accept
begin authenticators
plain:
  driver = plaintext
  public_name = PLAIN
  server_condition = ${if and{{eq{$auth2}{ops}}{eq{$auth3}{sekrit}}}}
  server_set_id = $auth2
`

// TestExim: a mail server as Debian has it takes what is sent, and what it refuses is understood.
func TestExim(t *testing.T) {
	needs.Programs(t, "exim4")
	folder := t.TempDir()
	address, ca := startExim(t, folder)

	password := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(password, []byte("sekrit\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	config := mail.Config{Server: address, From: "harp <harp@example.org>", User: "ops", PasswordFile: password, CAFiles: []string{ca}}
	sender, err := mail.New(config)
	if err != nil {
		t.Fatal(err)
	}
	m := message()
	m.Subject = "Größe\r\nBcc: eve@example.org"
	if err := sender.Send(t.Context(), receiver("ana@example.org", "ben@example.org"), m); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(folder, "spool", "input", "*-[HD]"))
	if err != nil || len(files) != 2 {
		t.Fatalf("the spool holds %v, %v", files, err)
	}
	var spool []byte
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		spool = append(spool, content...)
	}
	for _, want := range []string{
		"\n2\nana@example.org\nben@example.org\n", "Message-ID: <store%2Eops%201@example.org>\n", "Subject: =?UTF-8?q?Gr=C3=B6=C3=9Fe_Bcc:_eve@example.org?=\n",
		"-auth_id ops\n", "-tls_cipher TLS1.", "\nexit 1\n.\nBcc: a@example.org\n..\n", "gr=C3=BC=C3=9Fe\n",
	} {
		if !bytes.Contains(spool, []byte(want)) {
			t.Errorf("the spool lacks %q", want)
		}
	}

	for _, c := range []struct {
		to, subject, want string
		final             bool
	}{
		{"nobody@example.org", "a", "sent to 0 of 1; nobody@example.org: 550 no such user here", true},
		{"ana@example.com", "a", "sent to 0 of 1; ana@example.com: 550 relay not permitted", true},
		{"later@example.org", "a", "sent to 0 of 1; later@example.org: 451 come back later", false},
		{"ana@example.org", "virus", "message: 550 virus", true},
	} {
		m.Subject = c.subject
		if got := failed(t, sender.Send(t.Context(), receiver(c.to), m)); got.Answer != c.want || got.Final != c.final {
			t.Errorf("%s: %+v, want %s", c.to, got, c.want)
		}
	}
	if err := os.WriteFile(password, []byte("wrong\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := failed(t, sender.Send(t.Context(), receiver("ana@example.org"), m)); got.Answer != "the server does not let the user in: 535" || got.Final {
		t.Errorf("with a wrong password: %+v", got)
	}
}

// startExim starts exim on a port of its own, and returns where that is and the file with its certificate.
func startExim(t *testing.T, folder string) (address, ca string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address = listener.Addr().String()
	port := listener.Addr().(*net.TCPAddr).Port
	_ = listener.Close() // the port is exim's now

	ca = filepath.Join(folder, "cert.pem")
	writeCertificate(t, ca, filepath.Join(folder, "key.pem"))
	config := filepath.Join(folder, "conf")
	if err := os.WriteFile(config, fmt.Appendf(nil, eximConfig, folder, os.Getuid(), os.Getgid(), port), 0o600); err != nil {
		t.Fatal(err)
	}
	exim := exec.Command("exim4", "-C", config, "-bdf")
	var said bytes.Buffer
	exim.Stdout, exim.Stderr = &said, &said
	if err := exim.Start(); err != nil {
		t.Fatal(err)
	}
	var done sync.WaitGroup
	ended := make(chan struct{})
	done.Go(func() {
		_ = exim.Wait() // it is killed
		close(ended)
	})
	t.Cleanup(func() {
		_ = exim.Process.Kill()
		done.Wait()
		if t.Failed() {
			log, _ := os.ReadFile(filepath.Join(folder, "log_main"))
			t.Logf("exim says:\n%s\n%s", said.Bytes(), log)
		}
	})
	for began := time.Now(); ; {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			line, _ := bufio.NewReader(conn).ReadString('\n')
			_ = conn.Close()
			if strings.HasPrefix(line, "220 mail.example.org") {
				return address, ca
			}
		}
		select {
		case <-ended:
			t.Fatal("exim has ended")
		case <-time.After(20 * time.Millisecond):
		}
		if time.Since(began) > 30*time.Second {
			t.Fatal("exim does not listen")
		}
	}
}

// writeCertificate writes a certificate that is good for 127.0.0.1, and its key.
func writeCertificate(t *testing.T, certificate, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "mail"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
	}
	signed, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	for file, block := range map[string]*pem.Block{certificate: {Type: "CERTIFICATE", Bytes: signed}, key: {Type: "PRIVATE KEY", Bytes: der}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
