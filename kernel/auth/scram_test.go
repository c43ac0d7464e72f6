package auth

import (
	"context"
	"encoding/base64"
	"errors"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/sasl"
	client "github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/trivium-mq/trivium/kernel"
)

// rfc7677 is the exchange of RFC 7677 section 3.
func rfc7677(t *testing.T) (s *Scram, find func(string) (kernel.ScramKey, bool)) {
	t.Helper()
	salt, err := base64.StdEncoding.DecodeString("W22ZaJ0SNY7soEsUEjb6gQ==")
	if err != nil {
		t.Fatal(err)
	}
	key, err := scramKey(ScramSHA256, scramDigests[0].digest, "pencil", salt, 4096)
	if err != nil {
		t.Fatal(err)
	}
	s, _ = NewScram(ScramSHA256)
	s.nonce = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
	return s, func(user string) (kernel.ScramKey, bool) { return key, user == "user" }
}

const (
	rfcFirst     = "n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
	rfcChallenge = "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
	rfcFinal     = "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
	rfcProof     = "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
)

func TestScramOfRFC7677(t *testing.T) {
	s, find := rfc7677(t)
	challenge, err := s.First([]byte(rfcFirst), find)
	if err != nil || string(challenge) != rfcChallenge {
		t.Fatalf("%q, %v", challenge, err)
	}
	proof, ok, err := s.Final([]byte(rfcFinal))
	if err != nil || !ok || string(proof) != rfcProof || s.User() != "user" {
		t.Errorf("%q, %v, %v", proof, ok, err)
	}
	if _, _, err := s.Final([]byte(rfcFinal)); !errors.Is(err, ErrScram) {
		t.Errorf("a second proof: %v", err)
	}
}

func TestScramRefusesWrongProofs(t *testing.T) {
	for name, change := range map[string]func(s *Scram, final string) string{
		"a bit of the proof": func(_ *Scram, f string) string { return strings.Replace(f, "p=d", "p=e", 1) },
		"an extension that was not proved": func(_ *Scram, f string) string {
			return strings.Replace(f, ",p=", ",x=1,p=", 1)
		},
		"a user who is not": func(s *Scram, f string) string { s.known = false; return f },
	} {
		s, find := rfc7677(t)
		if _, err := s.First([]byte(rfcFirst), find); err != nil {
			t.Fatal(err)
		}
		if proof, ok, err := s.Final([]byte(change(s, rfcFinal))); ok || err != nil || proof != nil {
			t.Errorf("%s: %v, %v", name, ok, err)
		}
	}
}

func TestScramRefusesBadMessages(t *testing.T) {
	for _, first := range []string{
		"", "n", "n,", "n,,", "n,,n=user", "n,,r=x,n=user", "n,,n=,r=x", "n,,n=user,r=", "n,,n=us=er,r=x", "n,,n=user,r=a b", "x,,n=user,r=x",
		"n,,m=1,n=user,r=x", "p=tls-unique,,n=user,r=x", "n,a=other,n=user,r=x", "n,b=user,n=user,r=x", "n,,n=us\x00er,r=x", "n,,n=\xff,r=x",
		"n,,n=user,r=" + strings.Repeat("x", maxNonce+1), "n,,n=" + strings.Repeat("u", maxScram) + ",r=x",
	} {
		s, find := rfc7677(t)
		if _, err := s.First([]byte(first), find); !errors.Is(err, ErrScram) {
			t.Errorf("%.60q: %v", first, err)
		}
	}
	for _, first := range []string{"y,,n=user,r=x", "n,a=user,n=user,r=x", "n,,n=user,r=x,ext=1"} {
		s, find := rfc7677(t)
		if _, err := s.First([]byte(first), find); err != nil {
			t.Errorf("%q: %v", first, err)
		}
	}
	for _, final := range []string{
		"", "c=biws", "c=biws,r=other,p=dHzb", strings.Replace(rfcFinal, "biws", "eSws", 1), strings.Replace(rfcFinal, "biws", "b", 1),
		strings.Replace(rfcFinal, "p=dHzb", "p=", 1), strings.Replace(rfcFinal, "hNlF$k0", "hNlF$k1", 1), strings.Repeat("x", maxScram+1) + ",p=",
	} {
		s, find := rfc7677(t)
		if _, err := s.First([]byte(rfcFirst), find); err != nil {
			t.Fatal(err)
		}
		if _, ok, err := s.Final([]byte(final)); ok || !errors.Is(err, ErrScram) {
			t.Errorf("%.60q: %v, %v", final, ok, err)
		}
	}
	s, _ := NewScram(ScramSHA256)
	if _, _, err := s.Final([]byte(rfcFinal)); !errors.Is(err, ErrScram) {
		t.Errorf("the last message first: %v", err)
	}
	if _, ok := NewScram("SCRAM-SHA-1"); ok {
		t.Error("SCRAM-SHA-1 is spoken")
	}
}

// The client of franz-go, with both mechanisms and names that are escaped.
func TestScramWithClient(t *testing.T) {
	keys, err := ScramKeys("pass, =word")
	if err != nil {
		t.Fatal(err)
	}
	u := &kernel.User{Name: "a,b=c", Scram: keys}
	for _, m := range []struct {
		name string
		of   func(client.Auth) sasl.Mechanism
	}{{ScramSHA256, client.Auth.AsSha256Mechanism}, {ScramSHA512, client.Auth.AsSha512Mechanism}} {
		for password, want := range map[string]bool{"pass, =word": true, "other": false} {
			session, msg, err := m.of(client.Auth{User: u.Name, Pass: password}).Authenticate(context.Background(), "")
			if err != nil {
				t.Fatal(err)
			}
			s, _ := NewScram(m.name)
			challenge, err := s.First(msg, func(name string) (kernel.ScramKey, bool) { return ScramKeyOf(u, name, m.name, nil) })
			if err != nil || s.User() != u.Name {
				t.Fatalf("%q, %v", s.User(), err)
			}
			if _, msg, err = session.Challenge(challenge); err != nil {
				t.Fatal(err)
			}
			proof, ok, err := s.Final(msg)
			if ok != want || err != nil {
				t.Errorf("%s, %s: %v, %v", m.name, password, ok, err)
			}
			if want {
				if done, _, err := session.Challenge(proof); !done || err != nil {
					t.Errorf("%s: the client does not believe the server: %v", m.name, err)
				}
			}
		}
	}
}

// A user who is not looks like one who is: the same salt each time, of the same
// length.
func TestMadeUpScramKeys(t *testing.T) {
	secret := []byte("secret")
	keys, err := ScramKeys("x")
	if err != nil {
		t.Fatal(err)
	}
	for _, real := range keys {
		first, known := ScramKeyOf(nil, "nobody", real.Mechanism, secret)
		again, _ := ScramKeyOf(&kernel.User{Name: "nobody"}, "nobody", real.Mechanism, secret)
		other, _ := ScramKeyOf(nil, "nobody2", real.Mechanism, secret)
		if known || string(first.Salt) != string(again.Salt) || string(first.Salt) == string(other.Salt) {
			t.Errorf("%s: %x, %x, %x", real.Mechanism, first.Salt, again.Salt, other.Salt)
		}
		if len(first.Salt) != len(real.Salt) || first.Iterations != real.Iterations || len(first.StoredKey) != len(real.StoredKey) {
			t.Errorf("%s: %+v does not look like %+v", real.Mechanism, first, real)
		}
	}
}

func FuzzScram(f *testing.F) {
	f.Add(rfcFirst, rfcFinal)
	f.Add("y,a=user,n=us=2Cer,r=x,ext=1", "c=eSw,r=x,p=")
	keys, err := ScramKeys("pencil")
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, first, final string) {
		s, _ := NewScram(ScramSHA256)
		challenge, err := s.First([]byte(first), func(string) (kernel.ScramKey, bool) { return keys[0], true })
		if (err == nil) != (challenge != nil) {
			t.Fatalf("%q, %v", challenge, err)
		}
		if proof, ok, _ := s.Final([]byte(final)); ok || proof != nil {
			t.Fatalf("%q got in", final) // the nonce is new
		}
	})
}
