"""A GitHub App's key and deliveries."""

from typing import Any, Final

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from tests.clocks import START


def pem(key: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey) -> str:
    form = serialization.PrivateFormat.PKCS8
    return key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()).decode()


KEY: Final = rsa.generate_private_key(65537, 2048)
KEY_PEM: Final = pem(KEY)


def delivery_json(number: int, **changed: Any) -> dict[str, Any]:
    delivery = {"id": number, "guid": f"guid-{number}", "delivered_at": START.iso_seconds(), "redelivery": False}
    return {**delivery, "status": "OK", "status_code": 200, "event": "workflow_job", **changed}
