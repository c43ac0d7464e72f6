package session

import (
	"errors"
	"testing"
	"time"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/metasvc/codec"
)

func TestRecord(t *testing.T) {
	for _, want := range []Record{
		{},
		{Expiry: time.Hour},
		{Expiry: time.Hour, Owner: "u"},
		{Expiry: kernel.SessionForever, ExpiresAt: time.UnixMilli(1_800_000_000_123)},
	} {
		got, err := ReadRecord(want.Append(nil))
		if err != nil || got != want {
			t.Errorf("got %v, %v, want %v", got, err, want)
		}
	}
	want := Subscription{Subscription: kernel.Subscription{Filter: "a/#", QoS: 1, Options: 7, Identifier: 268435455}, Grouped: true}
	got, err := ReadSubscription("a/#", want.Append(nil))
	if err != nil || got != want {
		t.Errorf("got %v, %v, want %v", got, err, want)
	}
}

func TestRefused(t *testing.T) {
	b := Record{Expiry: 1}.Append(nil)
	b[0] = versionOwned + 1
	if _, err := ReadRecord(b); !errors.Is(err, ErrVersion) {
		t.Errorf("wrong version: %v", err)
	}
	s := Subscription{}.Append(nil)
	s[0] = Version + 1
	if _, err := ReadSubscription("x", s); !errors.Is(err, ErrVersion) {
		t.Errorf("wrong version: %v", err)
	}
	for n := range 4 {
		if _, err := ReadSubscription("x", Subscription{}.Append(nil)[:n]); !errors.Is(err, codec.ErrCorrupt) {
			t.Errorf("cut to %d: %v", n, err)
		}
	}
}

func TestEpoch(t *testing.T) {
	for _, want := range []uint64{0, 1, 3<<40 | 7, 1<<64 - 1} {
		if got, err := ReadEpoch(AppendEpoch(nil, want)); err != nil || got != want {
			t.Errorf("got %d, %v, want %d", got, err, want)
		}
	}
	if _, err := ReadEpoch([]byte{Version + 1, 1}); !errors.Is(err, ErrVersion) {
		t.Errorf("wrong version: %v", err)
	}
	if _, err := ReadEpoch([]byte{Version}); !errors.Is(err, codec.ErrCorrupt) {
		t.Errorf("cut: %v", err)
	}
	tenant, client, err := ParseEpochKey(EpochKey("/", "c/1"))
	if err != nil || tenant != "/" || client != "c/1" {
		t.Error(tenant, client, err)
	}
}

func TestKeys(t *testing.T) {
	tenant, client, err := ParseSessionKey(SessionKey("/", "c 1"))
	if err != nil || tenant != "/" || client != "c 1" {
		t.Error(tenant, client, err)
	}
	tenant, client, filter, err := ParseSubscriptionKey(SubscriptionKey("/", "c/1", "a/+/#"))
	if err != nil || tenant != "/" || client != "c/1" || filter != "a/+/#" {
		t.Error(tenant, client, filter, err)
	}
	if _, _, err := ParseSessionKey([]byte("s/x")); !errors.Is(err, codec.ErrCorrupt) {
		t.Error(err)
	}
}
