"""Reads vendor-data from standard input as cloud-init does; writes what it found as JSON."""
import base64, io, json, logging, sys

warnings = io.StringIO()
handler = logging.StreamHandler(warnings)
handler.setLevel(logging.WARNING)
logging.getLogger().addHandler(handler)

try:
    from cloudinit import handlers, helpers, user_data
except ImportError:
    sys.exit("cloud-init is missing: apt-get install --no-install-recommends cloud-init")

blob = sys.stdin.buffer.read()
message = user_data.UserDataProcessor(helpers.Paths({})).process(blob)
parts = []
for part in message.walk():
    if part.get_content_maintype() == "multipart":
        continue
    payload = part.get_payload(decode=True)
    parts.append({"kind": part.get_content_type(), "filename": part.get_filename(), "content": base64.b64encode(payload).decode()})
json.dump({"parts": parts, "warnings": warnings.getvalue()}, sys.stdout)
