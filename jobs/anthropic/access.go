package anthropic

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"

	sdk "github.com/anthropics/anthropic-sdk-go/v2"
	"github.com/anthropics/anthropic-sdk-go/v2/option"

	"forkyard/forkcore"
)

// access is one key at the client's endpoint and what goes with it. It never
// changes: a request keeps the one it began with, whatever key follows.
type access struct {
	sdk   sdk.Client
	key   string
	scope forkcore.Scope
	// hidden are the keys that no text may show: this one and those it was made beside.
	hidden []string
	// opened is the hash of the sealed text that the key came in; zero = it came from the options.
	opened [sha256.Size]byte
}

// newAccess makes the access for a key that checkKey has passed; beside is the one in use, nil = none.
func (c *Client) newAccess(key string, beside *access) *access {
	a := &access{key: key, scope: forkcore.Scope{Endpoint: forkcore.Fingerprint(c.baseURL), Key: forkcore.Fingerprint(key)}}
	a.hidden = appendSecret(nil, key)
	if beside != nil {
		// The last few are enough: no request runs longer than the total timeout.
		for _, k := range beside.hidden[:min(len(beside.hidden), 7)] {
			if k != key {
				a.hidden = append(a.hidden, k)
			}
		}
	}
	opts := append([]option.RequestOption{}, c.options...)
	if key != "" {
		opts = append(opts, option.WithAPIKey(key))
	}
	a.sdk = sdk.NewClient(opts...)
	return a
}

// appendSecret leaves out keys so short that they may stand in any text.
func appendSecret(keys []string, key string) []string {
	if len(key) < 8 {
		return keys
	}
	return append(keys, key)
}

// clean makes a message fit for storage and keeps keys out of it: gateways
// have been seen to repeat the key they were given.
func (a *access) clean(s string) string {
	for _, key := range a.hidden {
		s = strings.ReplaceAll(s, key, "[API key]")
	}
	return forkcore.CutText(forkcore.CleanText(s), maxMessageBytes)
}

// checkKey says what is wrong with a key before anything is asked of the endpoint.
func checkKey(key string) error {
	if strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return errors.New("the API key contains white space or characters that no key has: check ANTHROPIC_API_KEY")
	}
	if len(key) > maxKey {
		return fmt.Errorf("the API key is longer than %d characters: check ANTHROPIC_API_KEY", maxKey)
	}
	return nil
}

// maxKey is more than any key has; tokens of identity providers come near it.
const maxKey = 8 << 10

// KeyEnd is enough of a key to tell it from others and too little to use: its last four characters,
// empty for a key shorter than 20.
func KeyEnd(key string) string {
	if key = strings.TrimSpace(key); len(key) < 20 {
		return ""
	}
	return key[len(key)-4:]
}

// KeyEnd is KeyEnd of the key in use.
func (c *Client) KeyEnd() string { return KeyEnd(c.access.Load().key) }

// HasKey reports whether requests carry a key.
func (c *Client) HasKey() bool { return c.access.Load().key != "" }

const (
	// sealPrefix names the form of a sealed key: salt, nonce and ciphertext in base64url.
	sealPrefix = "fyk1."
	sealInfo   = "forkyard sealed API key v1"
	sealSalt   = 32
	// maxSealed bounds what Adopt looks at.
	maxSealed = 2 * maxKey
)

// Seal encrypts a key so that only who holds the key in use can open it (Adopt), and names the new key's
// Scope.Account. It is refused without a key in use, which would leave the new one readable to anybody, and for a key
// that is blank, has characters that no key has, or is the one in use. Nothing changes; no error repeats a key.
//
// The form is AES-256-GCM under a key that HKDF-SHA-256 derives from the key in use with a fresh salt; the account of
// the key in use is authenticated with it.
func (c *Client) Seal(key string) (sealed, account string, err error) {
	a := c.access.Load()
	key = strings.TrimSpace(key)
	switch err := checkKey(key); {
	case err != nil:
		return "", "", err
	case key == "":
		return "", "", errors.New("the new API key is blank")
	case a.key == "":
		return "", "", errors.New("no API key is in use, so a new one cannot be handed on encrypted: start every process with ANTHROPIC_API_KEY set")
	case key == a.key:
		return "", "", errors.New("the new API key is the one in use")
	}
	salt := make([]byte, sealSalt)
	_, _ = rand.Read(salt) // never fails: crypto/rand
	box, err := a.box(salt)
	if err != nil {
		return "", "", err
	}
	text := box.Seal(salt, nil, []byte(key), []byte(a.scope.Account()))
	next := forkcore.Scope{Endpoint: a.scope.Endpoint, Key: forkcore.Fingerprint(key)}
	return sealPrefix + base64.RawURLEncoding.EncodeToString(text), next.Account(), nil
}

// Adopt opens what Seal of another process made with the key in use, and uses that key from now on. Requests under way
// keep theirs. Adopting the same text twice is no error. It fails, and changes nothing, when the text is damaged or was
// sealed with another key.
func (c *Client) Adopt(sealed string) error {
	c.adopting.Lock()
	defer c.adopting.Unlock()
	a := c.access.Load()
	opened := sha256.Sum256([]byte(sealed))
	if a.opened == opened {
		return nil
	}
	encoded, ok := strings.CutPrefix(sealed, sealPrefix)
	if !ok || len(sealed) > maxSealed {
		return errors.New("the sealed API key has a form that this version does not know")
	}
	if a.key == "" {
		return errors.New("a sealed API key cannot be opened without the key it was sealed with: start every process with the same ANTHROPIC_API_KEY")
	}
	text, err := base64.RawURLEncoding.Strict().DecodeString(encoded)
	if err != nil || len(text) < sealSalt {
		return errors.New("the sealed API key is damaged")
	}
	box, err := a.box(text[:sealSalt])
	if err != nil {
		return err
	}
	key, err := box.Open(nil, nil, text[sealSalt:], []byte(a.scope.Account()))
	if err != nil {
		return errors.New("the sealed API key was sealed with another key than the one in use, for another endpoint, or is damaged")
	}
	if len(bytes.TrimSpace(key)) == 0 {
		return errors.New("the sealed API key is blank")
	}
	if err := checkKey(string(key)); err != nil {
		return err
	}
	next := c.newAccess(string(key), a)
	next.opened = opened
	c.access.Store(next)
	return nil
}

// box is the cipher for one salt; it makes its own nonces.
func (a *access) box(salt []byte) (cipher.AEAD, error) {
	key, err := hkdf.Key(sha256.New, []byte(a.key), salt, sealInfo, 32)
	if err != nil {
		return nil, fmt.Errorf("deriving the key for a sealed API key: %w", err)
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, fmt.Errorf("sealing an API key: %w", err)
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		return nil, fmt.Errorf("sealing an API key: %w", err)
	}
	return aead, nil
}
