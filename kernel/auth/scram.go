package auth

import (
	"bytes"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/subtle"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"strings"
	"unicode/utf8"

	"github.com/trivium-mq/trivium/kernel"
)

// The SCRAM mechanisms that are spoken.
const (
	ScramSHA256 = "SCRAM-SHA-256"
	ScramSHA512 = "SCRAM-SHA-512"
)

// scramDigests are the hashes of the mechanisms, in the order they are offered.
var scramDigests = []struct {
	name   string
	digest func() hash.Hash
}{{ScramSHA256, sha256.New}, {ScramSHA512, sha512.New}}

const (
	// scramIterations of PBKDF2 make a SCRAM key (RFC 7677 section 4 asks for
	// 4096 at least).
	scramIterations = 4096
	scramSalt       = 16
	// maxScram is the longest message of a client in bytes, maxNonce that of its
	// nonce.
	maxScram = 4096
	maxNonce = 512
)

// ErrScram is wrapped by the errors of messages that break RFC 5802, or ask for
// what is not supported.
var ErrScram = errors.New("scram")

// Scram is the server's side of one exchange (RFC 5802, RFC 7677), without
// channel binding. It neither waits nor looks anything up: First is given the
// key. Not for concurrent use.
type Scram struct {
	mechanism string
	digest    func() hash.Hash
	nonce     string // the server's part, until First: then all of it
	header    []byte // GS2 header, which the client repeats in its last message
	begun     bool
	transcript,
	user string
	key   kernel.ScramKey
	known bool
}

// NewScram begins an exchange. ok is false for a mechanism that is not spoken.
func NewScram(mechanism string) (s *Scram, ok bool) {
	for _, d := range scramDigests {
		if d.name == mechanism {
			return &Scram{mechanism: mechanism, digest: d.digest, nonce: rand.Text()}, true
		}
	}
	return nil, false
}

// Mechanism is the exchange's.
func (s *Scram) Mechanism() string { return s.mechanism }

// User is the name in the client's first message.
func (s *Scram) User() string { return s.user }

// First takes the client-first-message and returns the server's challenge. find
// gives the user's key; known false makes the exchange fail at its end, and not
// before. The error wraps ErrScram. msg is not kept.
func (s *Scram) First(msg []byte, find func(user string) (key kernel.ScramKey, known bool)) ([]byte, error) {
	if s.begun {
		return nil, scramError("a second first message")
	}
	s.begun = true
	header, bare, err := cutHeader(msg)
	if err != nil {
		return nil, err
	}
	fields := strings.Split(string(bare), ",")
	if len(fields) < 2 || !strings.HasPrefix(fields[0], "n=") || !strings.HasPrefix(fields[1], "r=") {
		return nil, scramError("the first message has no name and nonce")
	}
	name, ok := saslName(fields[0][2:])
	nonce := fields[1][2:]
	if !ok || name == "" || !printable(nonce) || nonce == "" || len(nonce) > maxNonce {
		return nil, scramError("the first message has a bad name or nonce")
	}
	if authz, ok := saslName(strings.TrimPrefix(authorization(header), "a=")); !ok || authz != "" && authz != name {
		return nil, scramError("acting for another user is not supported")
	}
	s.user, s.header, s.nonce = name, header, nonce+s.nonce
	s.key, s.known = find(name)
	challenge := fmt.Sprintf("r=%s,s=%s,i=%d", s.nonce, base64.StdEncoding.EncodeToString(s.key.Salt), s.key.Iterations)
	s.transcript = string(bare) + "," + challenge + ","
	return []byte(challenge), nil
}

// Final takes the client-final-message. If it proves that the client knows the
// password it returns the server's own proof, else ok is false. The error wraps
// ErrScram. Comparing takes the same time whatever differs, and whether the user
// is known.
func (s *Scram) Final(msg []byte) (proof []byte, ok bool, err error) {
	if s.transcript == "" {
		return nil, false, scramError("a last message before the first")
	}
	text := string(msg)
	transcript := s.transcript
	s.transcript = "" // one attempt
	at := strings.LastIndex(text, ",p=")
	if len(msg) > maxScram || at < 0 {
		return nil, false, scramError("the last message has no proof")
	}
	fields := strings.Split(text[:at], ",")
	// The nonce may have something before it, as for Kafka: some librdkafka send
	// their own part twice. The proof is over all of it.
	if len(fields) < 2 || !strings.HasPrefix(fields[0], "c=") || !strings.HasPrefix(fields[1], "r=") || !strings.HasSuffix(fields[1][2:], s.nonce) {
		return nil, false, scramError("the last message has another nonce, or none")
	}
	if binding, err := base64.StdEncoding.DecodeString(fields[0][2:]); err != nil || !bytes.Equal(binding, s.header) {
		return nil, false, scramError("the last message has another channel binding")
	}
	given, err := base64.StdEncoding.DecodeString(text[at+3:])
	if err != nil || len(given) != s.digest().Size() {
		return nil, false, scramError("the proof is none")
	}
	message := []byte(transcript + text[:at])
	clientKey := make([]byte, len(given))
	subtle.XORBytes(clientKey, given, scramMAC(s.digest, s.key.StoredKey, message))
	stored := s.digest()
	stored.Write(clientKey)
	same := subtle.ConstantTimeCompare(stored.Sum(nil), s.key.StoredKey) == 1
	answer := "v=" + base64.StdEncoding.EncodeToString(scramMAC(s.digest, s.key.ServerKey, message))
	if !same || !s.known {
		return nil, false, nil
	}
	return []byte(answer), true, nil
}

func scramError(text string) error { return fmt.Errorf("%w: %s", ErrScram, text) }

func scramMAC(digest func() hash.Hash, key, message []byte) []byte {
	h := hmac.New(digest, key)
	h.Write(message)
	return h.Sum(nil)
}

// cutHeader splits the GS2 header, with its last comma, off a first message.
func cutHeader(msg []byte) (header, bare []byte, err error) {
	if len(msg) > maxScram || !utf8.Valid(msg) || bytes.IndexByte(msg, 0) >= 0 {
		return nil, nil, scramError("the first message is too long or no text")
	}
	flag, rest, _ := bytes.Cut(msg, []byte{','})
	authz, bare, ok := bytes.Cut(rest, []byte{','})
	switch {
	case !ok || len(authz) > 0 && !bytes.HasPrefix(authz, []byte("a=")):
		return nil, nil, scramError("the first message has no GS2 header")
	case bytes.HasPrefix(flag, []byte("p=")):
		return nil, nil, scramError("channel binding is not supported")
	case string(flag) != "n" && string(flag) != "y":
		return nil, nil, scramError("the first message has no GS2 header")
	case bytes.HasPrefix(bare, []byte("m=")):
		return nil, nil, scramError("a mandatory extension is not supported")
	}
	header = msg[:len(msg)-len(bare)]
	return bytes.Clone(header), bare, nil
}

// authorization is the second field of a GS2 header.
func authorization(header []byte) string {
	_, rest, _ := strings.Cut(string(header), ",")
	return strings.TrimSuffix(rest, ",")
}

// saslName undoes the escapes of a name: =2C and =3D.
func saslName(s string) (string, bool) {
	var b strings.Builder
	for {
		plain, rest, ok := strings.Cut(s, "=")
		b.WriteString(plain)
		if !ok {
			return b.String(), true
		}
		switch {
		case strings.HasPrefix(rest, "2C"):
			b.WriteByte(',')
		case strings.HasPrefix(rest, "3D"):
			b.WriteByte('=')
		default:
			return "", false
		}
		s = rest[2:]
	}
}

func printable(s string) bool {
	for i := range len(s) {
		if s[i] < 0x21 || s[i] > 0x7e || s[i] == ',' {
			return false
		}
	}
	return true
}

// ScramKeyOf returns a user's key for a mechanism; known is false, and the key
// one that looks like any other and is always the same for the name, if there is
// no such user (u is nil) or he has none. secret is what only the broker knows.
func ScramKeyOf(u *kernel.User, name, mechanism string, secret []byte) (key kernel.ScramKey, known bool) {
	if u != nil {
		for _, k := range u.Scram {
			if k.Mechanism == mechanism {
				key, known = k, true
			}
		}
	}
	// Derived for everybody, so that it takes the same time.
	salt := hmac.New(sha512.New, secret)
	salt.Write(binary.LittleEndian.AppendUint32(nil, uint32(len(mechanism))))
	salt.Write([]byte(mechanism + name))
	noise := salt.Sum(nil)
	if known {
		return key, true
	}
	size := sha256.Size
	if mechanism == ScramSHA512 {
		size = sha512.Size
	}
	return kernel.ScramKey{
		Mechanism: mechanism, Iterations: scramIterations, Salt: noise[:scramSalt],
		StoredKey: make([]byte, size), ServerKey: make([]byte, size),
	}, false
}
