package auth

import (
	"context"
	"encoding/base64"
	"net"
	"os"
	"strings"
	"sync"
	"testing"

	"golang.org/x/crypto/bcrypt"

	"github.com/trivium-mq/trivium/kernel"
)

func TestMain(m *testing.M) {
	bcryptCost = bcrypt.MinCost
	os.Exit(m.Run())
}

func TestLoopback(t *testing.T) {
	for _, tc := range []struct {
		remote net.Addr
		want   bool
	}{
		{&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1}, true},
		{&net.TCPAddr{IP: net.IPv6loopback, Port: 1}, true},
		{&net.TCPAddr{IP: net.ParseIP("::ffff:127.0.0.5"), Port: 1}, true},
		{&net.UnixAddr{Name: "/s", Net: "unix"}, true},
		{&net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 1}, false},
		{nil, false},
	} {
		if got := Loopback(tc.remote); got != tc.want {
			t.Errorf("Loopback(%v) = %v, want %v", tc.remote, got, tc.want)
		}
	}
}

// The hashes of RabbitMQ's documentation ("Computing Password Hash": salt
// 908D C60A, password test12) and one of each other kind.
func TestPasswords(t *testing.T) {
	rabbit := "kI3GCqW5JLMJa4iX1lo7X4D6XbYqlLgxIs30+P6tENUV2POR"
	made, err := HashPassword("s3cret")
	if err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("x", 100)
	longHash, err := HashPassword(long)
	if err != nil {
		t.Fatal(err)
	}
	parse := func(text string) kernel.PasswordHash {
		h, err := ParseHash(text, kernel.HashNone)
		if err != nil {
			t.Fatal(err)
		}
		if again := FormatHash(h); again != text {
			t.Errorf("%q is written as %q", text, again)
		}
		return h
	}
	for _, tc := range []struct {
		hash     kernel.PasswordHash
		password string
		want     bool
	}{
		{parse(rabbit), "test12", true},
		{parse(rabbit), "test13", false},
		{parse(rabbit), "", false},
		{made, "s3cret", true},
		{made, "S3cret", false},
		{parse(made.Hash), "s3cret", true},
		{longHash, long, true},
		{longHash, long[:99], false},
		{longHash, long[:99] + "y", false},
		{SaltedHash("guest"), "guest", true},
		{SaltedHash("guest"), "Guest", false},
		{kernel.PasswordHash{}, "", false},
		{kernel.PasswordHash{}, "x", false},
		{kernel.PasswordHash{Algorithm: kernel.HashSHA256, Hash: "1234"}, "x", false},
	} {
		if got := CheckPassword(tc.hash, tc.password); got != tc.want {
			t.Errorf("%s: %q is %v, want %v", tc.hash.Algorithm, tc.password, got, tc.want)
		}
	}
	for algorithm, size := range map[kernel.HashAlgorithm]int{kernel.HashSHA256: 36, kernel.HashSHA512: 68, kernel.HashMD5: 20} {
		if h := parse(base64.StdEncoding.EncodeToString(make([]byte, size))); h.Algorithm != algorithm {
			t.Errorf("%d bytes are %s, want %s", size, h.Algorithm, algorithm)
		}
	}
	for _, bad := range []string{"", "xyz!", "$2a$10$short", base64.StdEncoding.EncodeToString(make([]byte, 30)),
		"$2a$31$N9qo8uLOickgx2ZMRZoMyeIjZAgcfl7p92ldGxad68LJZdL17lhWy"} {
		if _, err := ParseHash(bad, kernel.HashNone); kernel.CodeOf(err) != kernel.CodeInvalid {
			t.Errorf("hash %q: %v", bad, err)
		}
	}
	if _, err := HashPassword(""); kernel.CodeOf(err) != kernel.CodeInvalid {
		t.Errorf("an empty password: %v", err)
	}
}

func TestScramKeys(t *testing.T) {
	keys, err := ScramKeys("pencil")
	if err != nil || len(keys) != 2 {
		t.Fatal(keys, err)
	}
	for i, size := range []int{32, 64} {
		if k := keys[i]; len(k.StoredKey) != size || len(k.ServerKey) != size || k.Iterations < 4096 || len(k.Salt) < 16 {
			t.Errorf("%s: %d, %d bytes, %d iterations", k.Mechanism, len(k.StoredKey), len(k.ServerKey), k.Iterations)
		}
	}
}

func TestVerifier(t *testing.T) {
	h, err := HashPassword("right")
	if err != nil {
		t.Fatal(err)
	}
	u := &kernel.User{Name: "u", Password: h}
	v := NewVerifier()
	var wg sync.WaitGroup
	for range 64 { // a storm costs a slow check or two
		wg.Go(func() {
			if ok, err := v.Check(context.Background(), u, "right"); !ok || err != nil {
				t.Error(ok, err)
			}
		})
	}
	wg.Wait()
	if len(v.right) != 1 {
		t.Errorf("%d checks are remembered", len(v.right))
	}
	next := *u
	if next.Password, err = HashPassword("other"); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		user     *kernel.User
		password string
	}{{u, "wrong"}, {&next, "right"}, {nil, "right"}, {&kernel.User{Name: "u"}, "right"}, {&kernel.User{Name: "u"}, ""}} {
		if ok, err := v.Check(context.Background(), tc.user, tc.password); ok || err != nil {
			t.Errorf("%v, %q: %v, %v", tc.user, tc.password, ok, err)
		}
	}
	full, cancel := context.WithCancel(context.Background())
	cancel()
	for len(v.slots) < cap(v.slots) {
		v.slots <- struct{}{}
	}
	if _, err := v.Check(full, u, "wrong"); err == nil {
		t.Error("a check did not wait for its turn")
	}
}

// source is a Source of maps.
type source struct {
	users, tenants map[string]bool
	permissions    map[[2]string]*kernel.Permission
	topics         map[[3]string]*kernel.TopicPermission
}

func (s *source) Tenant(name string) (*kernel.Tenant, bool) {
	return &kernel.Tenant{Name: name}, s.tenants[name]
}

func (s *source) User(name string) (*kernel.User, bool) {
	return &kernel.User{Name: name}, s.users[name]
}

func (s *source) Permission(tenant, user string) (*kernel.Permission, bool) {
	p, ok := s.permissions[[2]string{tenant, user}]
	return p, ok
}

func (s *source) TopicPermission(tenant, user, exchange string) (*kernel.TopicPermission, bool) {
	p, ok := s.topics[[3]string{tenant, user, exchange}]
	return p, ok
}

func TestDirectory(t *testing.T) {
	src := &source{
		users: map[string]bool{"u": true, "none": true}, tenants: map[string]bool{"/": true, "b": true},
		permissions: map[[2]string]*kernel.Permission{
			{"/", "u"}: {Configure: "^u-", Write: "", Read: ".*"}, {"/", "gone"}: {Read: ".*"}, {"gone", "u"}: {Read: ".*"},
			{"b", "u"}: {Configure: "((", Write: "amq\\.default", Read: "^(a|b)$"},
		},
	}
	d := NewDirectory(src)
	for _, tc := range []struct {
		user, tenant string
		act          kernel.Act
		name         string
		want         bool
	}{
		{"u", "/", kernel.Configure, "u-1", true},
		{"u", "/", kernel.Configure, "xu-1", false},
		{"u", "/", kernel.Write, "q", false}, // '' is '^$'
		{"u", "/", kernel.Write, "", true},
		{"u", "/", kernel.Read, "q", true},
		{"u", "/", kernel.Read, "q\nr", true},
		{"u", "b", kernel.Configure, "((", false}, // broken: nothing
		{"u", "b", kernel.Write, "x-amq.default-y", true},
		{"u", "b", kernel.Read, "a", true},
		{"u", "b", kernel.Read, "ab", false},
		{"u", "b", kernel.Act(3), "a", false},
		{"gone", "/", kernel.Read, "q", false},
		{"u", "gone", kernel.Read, "q", false},
		{"none", "/", kernel.Read, "q", false},
	} {
		if got := d.May(tc.user, tc.tenant, tc.act, tc.name); got != tc.want {
			t.Errorf("%s may %s %q in %s: %v", tc.user, tc.act, tc.name, tc.tenant, got)
		}
	}
	if d.Rights("none", "/", "") != nil || d.Rights("u", "/", "") == nil {
		t.Error("access to a tenant is a permission in it")
	}
}

func TestTopicPermissions(t *testing.T) {
	src := &source{
		users: map[string]bool{"u.1": true}, tenants: map[string]bool{"/": true},
		permissions: map[[2]string]*kernel.Permission{{"/", "u.1"}: {}},
		topics: map[[3]string]*kernel.TopicPermission{
			{"/", "u.1", "amq.topic"}: {Write: "^{username}\\.{client_id}\\.", Read: ""},
			{"/", "u.1", "x"}:         {Write: "^a{2}$", Read: "^{vhost}"},
		},
	}
	d := NewDirectory(src)
	for _, tc := range []struct {
		client   string
		act      kernel.Act
		exchange string
		key      string
		want     bool
	}{
		{"c", kernel.Write, "amq.topic", "u.1.c.t", true},
		{"c", kernel.Write, "amq.topic", "ux1.c.t", false}, // the name stands for itself
		{".*", kernel.Write, "amq.topic", "u.1.c.t", false},
		{".*", kernel.Write, "amq.topic", "u.1..*.t", true},
		{"", kernel.Write, "amq.topic", "u.1.c.t", false},
		{"c", kernel.Read, "amq.topic", "u.1.c.t", false},
		{"c", kernel.Write, "x", "aa", true},
		{"c", kernel.Read, "x", "/b", true},
		{"c", kernel.Read, "x", "b/", false},
		{"c", kernel.Write, "other", "anything", true}, // no row, no restriction
	} {
		if got := d.Rights("u.1", "/", tc.client).MayKey(tc.act, tc.exchange, tc.key); got != tc.want {
			t.Errorf("client %q, %s of %q at %s: %v", tc.client, tc.act, tc.key, tc.exchange, got)
		}
	}
	if d.Rights("nobody", "/", "").MayKey(kernel.Read, "other", "k") {
		t.Error("no rights, but a key")
	}
}

func TestCheckPattern(t *testing.T) {
	for _, good := range []string{"", ".*", "^{client_id}$", "a{2}", strings.Repeat("x", 4096)} {
		if err := CheckPattern(good); err != nil {
			t.Errorf("%q: %v", good, err)
		}
	}
	for _, bad := range []string{"(", "(?=a)", "*", strings.Repeat("x", 4097)} {
		if err := CheckPattern(bad); kernel.CodeOf(err) != kernel.CodeInvalid {
			t.Errorf("%q: %v", bad, err)
		}
	}
}
