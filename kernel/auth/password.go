package auth

import (
	"context"
	"crypto/hmac"
	"crypto/md5" //nolint:gosec // RabbitMQ's oldest format, for taking users over
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/subtle"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"hash"
	"runtime"
	"strings"
	"sync"

	"golang.org/x/crypto/bcrypt"

	"github.com/trivium-mq/trivium/kernel"
)

const (
	// maxBcryptCost is the highest that is taken over: some 4 s of one core.
	maxBcryptCost = 16
	// bcryptBytes is as much of a password as bcrypt looks at.
	bcryptBytes = 72
	// maxPassword is the longest password in bytes.
	maxPassword = 4096
	// saltBytes begin a hash of RabbitMQ's formats.
	saltBytes = 4
)

// bcryptCost is that of new hashes: some 60 ms of one core. Tests lower it.
var bcryptCost = 10

// digests are the hashes of RabbitMQ's formats.
var digests = map[kernel.HashAlgorithm]func() hash.Hash{
	kernel.HashSHA256: sha256.New, kernel.HashSHA512: sha512.New, kernel.HashMD5: md5.New,
}

// HashPassword makes the hash that is stored for a password. CodeInvalid for one
// that is empty or too long.
func HashPassword(password string) (kernel.PasswordHash, error) {
	if err := FitPassword(password); err != nil {
		return kernel.PasswordHash{}, err
	}
	text, err := bcrypt.GenerateFromPassword(forBcrypt(password), bcryptCost)
	if err != nil {
		return kernel.PasswordHash{}, fmt.Errorf("hash a password: %w", err)
	}
	return kernel.PasswordHash{Algorithm: kernel.HashBcrypt, Hash: string(text)}, nil
}

// SaltedHash makes a hash that costs nothing to check, for a password that
// everybody knows.
func SaltedHash(password string) kernel.PasswordHash {
	var salt [saltBytes]byte
	_, _ = rand.Read(salt[:]) // never fails
	sum := sha256.Sum256(append(salt[:], password...))
	return kernel.PasswordHash{Algorithm: kernel.HashSHA256, Hash: string(salt[:]) + string(sum[:])}
}

// FitPassword is CodeInvalid for a password that is empty or too long.
func FitPassword(password string) error {
	switch {
	case password == "":
		return kernel.Errorf(kernel.CodeInvalid, "user", "", "the password is empty")
	case len(password) > maxPassword:
		return kernel.Errorf(kernel.CodeInvalid, "user", "", "a password is at most %d bytes long", maxPassword)
	}
	return nil
}

// forBcrypt is what bcrypt hashes of a password: one that is longer than it
// looks at is digested first, so that all of it counts.
func forBcrypt(password string) []byte {
	if len(password) <= bcryptBytes {
		return []byte(password)
	}
	sum := sha256.Sum256([]byte(password))
	return []byte(base64.StdEncoding.EncodeToString(sum[:]))
}

// CheckPassword reports whether a hash is that of a password. Comparing takes
// the same time whatever differs. It is slow for bcrypt: see Verifier.
func CheckPassword(h kernel.PasswordHash, password string) bool {
	if password == "" || len(password) > maxPassword {
		return false
	}
	if h.Algorithm == kernel.HashBcrypt {
		return bcrypt.CompareHashAndPassword([]byte(h.Hash), forBcrypt(password)) == nil
	}
	digest, ok := digests[h.Algorithm]
	if !ok || len(h.Hash) <= saltBytes {
		return false
	}
	d := digest()
	d.Write([]byte(h.Hash[:saltBytes]))
	d.Write([]byte(password))
	return subtle.ConstantTimeCompare(d.Sum(nil), []byte(h.Hash[saltBytes:])) == 1
}

// ParseHash reads a hash as it is written in configuration and definitions:
// bcrypt's text, or base64 of one of RabbitMQ's. algorithm "" tells them apart
// by themselves. CodeInvalid.
func ParseHash(text string, algorithm kernel.HashAlgorithm) (kernel.PasswordHash, error) {
	invalid := func(why string) (kernel.PasswordHash, error) {
		return kernel.PasswordHash{}, kernel.Errorf(kernel.CodeInvalid, "user", "", "the password hash is no %s", why)
	}
	if algorithm == kernel.HashBcrypt || algorithm == kernel.HashNone && strings.HasPrefix(text, "$2") {
		if cost, err := bcrypt.Cost([]byte(text)); err != nil || len(text) != 60 || cost > maxBcryptCost {
			return invalid(fmt.Sprintf("bcrypt hash with a cost of at most %d", maxBcryptCost))
		}
		return kernel.PasswordHash{Algorithm: kernel.HashBcrypt, Hash: text}, nil
	}
	raw, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return invalid("base64")
	}
	if algorithm == kernel.HashNone {
		for a, digest := range digests {
			if len(raw) == saltBytes+digest().Size() {
				algorithm = a
			}
		}
	}
	digest, ok := digests[algorithm]
	if !ok || len(raw) != saltBytes+digest().Size() {
		return invalid("hash of a known algorithm: 4 bytes of salt and a SHA-256, SHA-512 or MD5 digest")
	}
	return kernel.PasswordHash{Algorithm: algorithm, Hash: string(raw)}, nil
}

// FormatHash writes a hash as ParseHash reads it.
func FormatHash(h kernel.PasswordHash) string {
	if _, ok := digests[h.Algorithm]; ok {
		return base64.StdEncoding.EncodeToString([]byte(h.Hash))
	}
	return h.Hash
}

// ScramKeys derives what SCRAM needs of a password (RFC 5802 section 3), for all
// mechanisms.
func ScramKeys(password string) ([]kernel.ScramKey, error) {
	var keys []kernel.ScramKey
	for _, m := range scramDigests {
		salt := make([]byte, scramSalt)
		_, _ = rand.Read(salt) // never fails
		key, err := scramKey(m.name, m.digest, password, salt, scramIterations)
		if err != nil {
			return nil, err
		}
		keys = append(keys, key)
	}
	return keys, nil
}

func scramKey(name string, digest func() hash.Hash, password string, salt []byte, iterations int) (kernel.ScramKey, error) {
	salted, err := pbkdf2.Key(digest, password, salt, iterations, digest().Size())
	if err != nil {
		return kernel.ScramKey{}, fmt.Errorf("derive a %s key: %w", name, err)
	}
	stored := digest()
	stored.Write(scramMAC(digest, salted, []byte("Client Key")))
	return kernel.ScramKey{
		Mechanism: name, Iterations: iterations, Salt: salt,
		StoredKey: stored.Sum(nil), ServerKey: scramMAC(digest, salted, []byte("Server Key")),
	}, nil
}

// maxVerified is how many successful checks a Verifier remembers.
const maxVerified = 10_000

// Verifier checks passwords for logins. It remembers what was right, so that
// many connections of one user cost one slow check, and lets only half of the
// CPUs be busy with those. Safe for concurrent use; make one with NewVerifier.
type Verifier struct {
	key   [32]byte      // of the memory, drawn per process: it holds no password
	slots chan struct{} // slow checks under way
	dummy kernel.PasswordHash

	mu    sync.Mutex
	right map[[sha256.Size]byte]struct{}
}

// NewVerifier returns a Verifier that remembers nothing yet.
func NewVerifier() *Verifier {
	v := &Verifier{slots: make(chan struct{}, max(runtime.GOMAXPROCS(0)/2, 1)), right: make(map[[sha256.Size]byte]struct{})}
	_, _ = rand.Read(v.key[:]) // never fails
	// A bcrypt hash, of bcryptCost, of nothing that anybody knows.
	v.dummy = kernel.PasswordHash{Algorithm: kernel.HashBcrypt, Hash: "$2a$10$N9qo8uLOickgx2ZMRZoMyeIjZAgcfl7p92ldGxad68LJZdL17lhWy"}
	return v
}

// Check reports whether password is user's; u nil stands for nobody. Whatever is
// wrong, a wrong password takes as long as bcrypt does. An error is ctx's: it ended while the check was
// waiting for its turn.
func (v *Verifier) Check(ctx context.Context, u *kernel.User, password string) (bool, error) {
	h, known := v.dummy, false
	if u != nil && u.Password.Algorithm != kernel.HashNone {
		h, known = u.Password, true
	}
	if h.Algorithm != kernel.HashBcrypt {
		if CheckPassword(h, password) {
			return true, nil
		}
		h, known = v.dummy, false
	}
	var mark [sha256.Size]byte
	if known {
		mark = v.mark(u.Name, h.Hash, password)
		if v.remembers(mark) {
			return true, nil
		}
	}
	select {
	case v.slots <- struct{}{}:
		defer func() { <-v.slots }()
	case <-ctx.Done():
		return false, ctx.Err()
	}
	if known && v.remembers(mark) { // found out while this one waited
		return true, nil
	}
	ok := CheckPassword(h, password) && known
	if ok {
		v.remember(mark)
	}
	return ok, nil
}

// mark identifies a check without giving away the password.
func (v *Verifier) mark(user, hash, password string) (m [sha256.Size]byte) {
	mac := hmac.New(sha256.New, v.key[:])
	for _, s := range []string{user, hash, password} {
		mac.Write(binary.LittleEndian.AppendUint64(nil, uint64(len(s))))
		mac.Write([]byte(s))
	}
	mac.Sum(m[:0])
	return m
}

func (v *Verifier) remembers(mark [sha256.Size]byte) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	_, ok := v.right[mark]
	return ok
}

// remember keeps a mark; one too many makes room by dropping any other.
func (v *Verifier) remember(mark [sha256.Size]byte) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for old := range v.right {
		if len(v.right) < maxVerified {
			break
		}
		delete(v.right, old)
	}
	v.right[mark] = struct{}{}
}
